"""Powers of two begin behind what lets none pass, end in front of an output, and go through a table that is turned."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise import fix
from halfwise.repair.rescale import RESCALE
from tests.models.build import model, node, value, weight
from tests.models.contrib_cases import DOMAIN
from tests.support.repairing import effect

Array = NDArray[np.float32]
SIZE, WORDS, LOUD = 16, 40, 3e5


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def feeds() -> list[dict[str, Array]]:
    return [{"x": normal(seed, 2, 4, SIZE)} for seed in range(6)]


def stream(first: list[onnx.NodeProto], *, ends: bool, gather: bool = False) -> onnx.ModelProto:
    """`first` makes h, to which a layer behind a norm adds much; then a norm, or the stream itself is the output."""
    nodes = [*first, node("LayerNormalization", "h g b", "n", epsilon=1e-5), node("MatMul", "n w1", "d"),
             node("Add", "h d", "y" if ends else "s")]  # fmt: skip
    nodes += [] if ends else [node("LayerNormalization", "s g b", "y", epsilon=1e-5)]
    weights = [weight("g", normal(2, SIZE)), weight("b", normal(3, SIZE)), weight("w0", normal(1, SIZE, SIZE)),
               weight("w1", normal(4, SIZE, SIZE, scale=LOUD)), weight("table", normal(5, SIZE, WORDS))]  # fmt: skip
    read = {name for each in nodes for name in each.input}
    given = value("x", TensorProto.INT64, (2, 4)) if gather else value("x", shape=(2, 4, SIZE))
    used = [each for each in weights if each.name in read]
    return model(nodes, [given], [value("y", shape=(2, 4, SIZE))], used, opset=20, domains=[DOMAIN])


@pytest.mark.parametrize("bends", ["Gelu", "Softplus", "com.microsoft"])
def test_a_stream_that_begins_behind_what_bends_is_scaled_from_there(bends: str) -> None:
    """As Whisper's encoder begins behind convolutions."""
    own = node("QuickGelu", "p", "h", domain=DOMAIN) if bends == DOMAIN else node(bends, "p", "h")
    found = effect(RESCALE, stream([node("MatMul", "x w0", "p"), own], ends=False), feeds())
    assert found.before > 1 > found.after and found.bit_identical
    assert found.ops().count("Mul") == 1


def test_no_factor_is_put_where_constants_are_enough() -> None:
    first = [node("MatMul", "x w0", "p"), node("Gelu", "p", "q"), node("MatMul", "q w0", "h")]
    found = effect(RESCALE, stream(first, ends=False), feeds())
    assert found.before > 1 > found.after and found.bit_identical
    assert "Mul" not in found.ops()


def test_a_stream_that_is_an_output_is_scaled_back_in_front_of_it_alone() -> None:
    """As CLIP's image encoder gives its last hidden state."""
    proto = stream([node("MatMul", "x w0", "h")], ends=True)
    nodes = [*proto.graph.node, node("LayerNormalization", "y g b", "z", epsilon=1e-5)]
    more = model(nodes, proto.graph.input, [*proto.graph.output, value("z", shape=(2, 4, SIZE))],
                 proto.graph.initializer, opset=20)  # fmt: skip
    found = effect(RESCALE, more, feeds())
    assert found.bit_identical
    kept, without = (fix(more, feeds(), repairs=which).fp32_nodes for which in ("all", "none"))
    assert len(kept) == 1 < len(without)


@pytest.mark.parametrize("tied", [False, True])
def test_a_table_that_is_turned_before_it_is_looked_up_makes_a_scale(tied: bool) -> None:
    """As GenAI's builder writes an embedding that is the last weight, too."""
    first = [node("Transpose", "table", "t", perm=[1, 0]), node("Gather", "t x", "h")]
    proto = stream(first, ends=False, gather=True)
    if tied:
        proto.graph.node.append(node("MatMul", "y table", "z"))
        proto.graph.output.append(value("z", shape=(2, 4, WORDS)))
    words = [{"x": np.random.default_rng(seed).integers(0, WORDS, (2, 4))} for seed in range(3)]
    found = effect(RESCALE, proto, words)
    assert found.before > 1 > found.after and found.bit_identical


def test_a_last_weight_that_is_turned_takes_a_scale_of_its_own() -> None:
    nodes = [node("LayerNormalization", "x g b", "n", epsilon=1e-5), node("Transpose", "w", "t", perm=[1, 0]),
             node("MatMul", "n t", "y")]  # fmt: skip
    weights = [weight("g", normal(2, SIZE, scale=300)), weight("b", normal(3, SIZE)),
               weight("w", normal(4, 8, SIZE, scale=1e-8))]  # fmt: skip
    proto = model(nodes, [value("x", shape=(2, 4, SIZE))], [value("y", shape=(2, 4, 8))], weights)
    found = effect(RESCALE, proto, feeds())
    assert found.before > 1 and found.after < 0.5 * found.before and found.bit_identical


def test_what_a_recurrent_operator_makes_may_be_scaled_behind_it() -> None:
    """A loud stream begins there: no power passes the operator, and none is lost in it."""
    first = [node("GRU", "x w r", "rows", hidden_size=SIZE), node("Squeeze", "rows one", "h")]
    nodes = [*first, node("MatMul", "h w1", "d"), node("Add", "h d", "s"),
             node("LayerNormalization", "s g b", "y", epsilon=1e-5)]  # fmt: skip
    weights = [weight("w", normal(1, 1, 3 * SIZE, SIZE)), weight("r", normal(2, 1, 3 * SIZE, SIZE, scale=0.1)),
               weight("one", np.array([1])), weight("w1", normal(4, SIZE, SIZE, scale=LOUD)),
               weight("g", normal(5, SIZE)), weight("b", normal(6, SIZE))]  # fmt: skip
    proto = model(nodes, [value("x", shape=(2, 4, SIZE))], [value("y", shape=(2, 4, SIZE))], weights, opset=20)
    found = effect(RESCALE, proto, feeds())
    assert found.before > 1 > found.after and found.bit_identical


def standardised(output: str) -> onnx.ModelProto:
    """Divided by its largest magnitude, as raw counts are, and multiplied by it again where that is the `output`."""
    nodes = [node("Abs", "x", "sizes"), node("ReduceMax", "sizes last", "most"), node("Div", "x most", "even"),
             node("MatMul", "even w", "mixed"), node("Relu", "mixed", "made"),
             node("Mul", "made most", "back")]  # fmt: skip
    read = nodes if output == "back" else nodes[:-1]
    weights = [weight("last", np.array([-1])), weight("w", normal(1, SIZE, SIZE))]
    return model(read, [value("x", shape=(2, SIZE))], [value(output, shape=(2, SIZE))], weights, opset=20)


@pytest.mark.parametrize(("output", "least"), [("made", 1), ("back", 2)])
def test_a_loud_input_is_scaled_in_one_node_that_stays_in_fp32(output: str, least: int) -> None:
    """One that FP16 does not hold; an output that it does not hold either takes another node."""
    loud = [{"x": normal(seed, 2, SIZE, scale=LOUD)} for seed in range(6)]
    made, without = (fix(standardised(output), loud, repairs=which) for which in ("all", "none"))
    assert made.met and len(made.fp32_nodes) == least < len(without.fp32_nodes)
    new = {each.name for each in made.sites.model.nodes} - {each.name for each in without.sites.model.nodes}
    assert new <= {*made.fp32_nodes}


@pytest.mark.parametrize("readers", [1, 2])
def test_a_loud_input_is_scaled_where_several_nodes_read_it(readers: int) -> None:
    """Nothing else overflows. One reader alone stays in FP32 itself."""
    nodes = [node("MatMul", "x w", "one"), node("MatMul", "x v" if readers == 2 else "one v", "two"),
             node("Add", "one two", "y")]  # fmt: skip
    weights = [weight(name, normal(seed, SIZE, SIZE, scale=1e-3)) for seed, name in enumerate("wv")]
    proto = model(nodes, [value("x", shape=(2, SIZE))], [value("y", shape=(2, SIZE))], weights, opset=20)
    made = fix(proto, [{"x": normal(seed, 2, SIZE, scale=LOUD)} for seed in range(6)])
    assert made.met and len(made.fp32_nodes) == 1 and len(made.plan.repairs) == readers - 1


def test_a_loud_input_is_scaled_once_nothing_else_has_to_overflow_for_it() -> None:
    """The square of the speed of sound is too large, too: with pressure and density scaled alike, it would stay so."""
    picks = [node("Gather", f"x i{row}", name) for row, name in enumerate(("pressure", "density", "momentum"))]
    nodes = [*picks, node("Mul", "pressure gamma", "stiff"), node("Div", "stiff density", "square"),
             node("Sqrt", "square", "sound"), node("Div", "momentum density", "speed"),
             node("Add", "speed sound", "sum"), node("Mul", "pressure sum", "flux"),
             node("LayerNormalization", "flux g b", "y", epsilon=1e-5)]  # fmt: skip
    weights = [*(weight(f"i{row}", np.array(row)) for row in range(3)), weight("gamma", np.float32(1.4)),
               weight("g", normal(2, SIZE)), weight("b", normal(3, SIZE))]  # fmt: skip
    proto = model(nodes, [value("x", shape=(3, SIZE))], [value("y", shape=(SIZE,))], weights, opset=20)
    offset, scale = np.array([[LOUD], [1.2], [0.0]], np.float32), np.array([[1e4], [0.1], [50.0]], np.float32)
    made = fix(proto, [{"x": offset + scale * normal(seed, 3, SIZE)} for seed in range(6)])
    assert made.met and len(made.fp32_nodes) == 1
