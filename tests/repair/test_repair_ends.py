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
