"""HW405: sums, products and lengths of many elements are scaled before they overflow, and no bit of FP32 changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from halfwise.model.model import load
from halfwise.repair import Ranges, repaired
from halfwise.repair.epsilons import EPSILONS
from halfwise.repair.reductions import REDUCTIONS
from tests.models.build import f32, model, node, value, weight
from tests.models.zoo import SHAPES, norm_log_head
from tests.support.repairing import effect, ranges_of
from tests.support.says import Says

Array = NDArray[np.float32]


def positive(*shape: int, scale: float = 1.0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(3)
    return [{"x": (scale * rng.uniform(0.2, 1.0, shape)).astype(np.float32)} for _ in range(3)]


def pool(*nodes: onnx.NodeProto, more: Any = (), shape: Any = ("n", 3, "h", "w"), out: Any = None) -> onnx.ModelProto:
    axes = weight("axes", np.array([2, 3]))
    reduced = node("ReduceSum", "x axes", "s", keepdims=0)
    return model([reduced, *nodes], [value("x", shape=shape)], [value("y", shape=out)], [axes, *more])


@pytest.mark.parametrize("shape", ["sum_over_512x512", "gram_matrix"])
def test_the_known_failures_need_no_fp32_node(shape: str) -> None:
    zoo = SHAPES[shape]()
    found = effect(REDUCTIONS, zoo.model, zoo.inputs, zoo.tolerance)
    assert found.before == np.inf
    assert found.after < 0.2
    assert found.bit_identical
    assert len(found.repairs) == 1


def test_the_sum_of_the_norm_log_head(says: Says) -> None:
    zoo = norm_log_head()
    loaded = load(zoo.model)
    (repair,) = REDUCTIONS.find(loaded, ranges_of(loaded, zoo.inputs[:2]))
    assert repair.parameters["fronts"] == [{"node": "/area/ReduceSum", "power": -7}]
    says(repair.algebra)


@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_a_mean_by_hand(op: str) -> None:
    factor = f32(1 / 40000) if op == "Mul" else f32(40000)
    proto = pool(node(op, "s c", "y"), more=[weight("c", factor)])
    found = effect(REDUCTIONS, proto, positive(2, 3, 200, 200, scale=9.0))
    assert found.before == np.inf
    assert found.after < 0.5
    assert found.bit_identical
    assert found.ops() == ["Mul", "ReduceSum", op]


def test_a_sum_into_a_linear_layer() -> None:
    rng = np.random.default_rng(1)
    more = [weight("w", rng.standard_normal((3, 4)).astype(np.float32) / np.float32(1e5)), weight("b", f32(1, 2, 3, 4))]
    found = effect(REDUCTIONS, pool(node("Gemm", "s w b", "y"), more=more), positive(2, 3, 200, 200, scale=9.0))
    assert found.before == np.inf
    assert found.after < 0.5
    assert found.bit_identical


def test_a_length_by_hand_is_scaled_back_behind_the_root() -> None:
    axes = weight("axes", np.array([-1]))
    nodes = [node("Mul", "x x", "q"), node("ReduceSum", "q axes", "s"), node("Sqrt", "s", "y")]
    proto = model(nodes, [value("x", shape=("n", 300))], [value("y", shape=None)], [axes])
    found = effect(REDUCTIONS, proto, positive(2, 300, scale=150.0))
    assert found.before == np.inf
    assert found.after < 0.5
    assert found.bit_identical
    assert found.ops() == ["Mul", "Mul", "ReduceSum", "Sqrt", "Mul"]
    assert found.repairs[0].parameters["fronts"][0]["power"] % 2 == 0
    assert found.repaired.output_names == ("y",)


@pytest.mark.parametrize(
    "squares",
    [
        [node("Pow", "x two", "q"), node("ReduceSum", "q axes", "s")],
        [node("ReduceSumSquare", "x", "s", axes=[-1])],
    ],
    ids=["Pow", "ReduceSumSquare"],
)
def test_squares_carry_the_square_of_the_factor(squares: list[onnx.NodeProto]) -> None:
    weights = [weight("axes", np.array([-1])), weight("two", f32(2)), weight("c", f32(1 / 3e5))]
    proto = model(
        [*squares, node("Mul", "s c", "y")], [value("x", shape=("n", 300))], [value("y", shape=None)], weights
    )
    found = effect(REDUCTIONS, proto, positive(2, 300, scale=200.0))
    (front,) = found.repairs[0].parameters["fronts"]
    (constant,) = found.repairs[0].parameters["constants"]
    assert constant["powers"] == -2 * front["power"] > 0
    assert found.before == np.inf
    assert found.after < 0.5
    assert found.bit_identical


def test_another_power_is_no_square() -> None:
    weights = [weight("three", f32(3)), weight("c", f32(1 / 3e5))]
    nodes = [node("Pow", "x three", "s"), node("Mul", "s c", "y")]
    proto = model(nodes, [value("x", shape=("n", 300))], [value("y", shape=None)], weights)
    assert effect(REDUCTIONS, proto, positive(2, 300, scale=60.0)).repairs == ()


# -- what it leaves alone ---------------------------------------------------------------------------------------------


def test_a_sum_that_fits_is_left_alone() -> None:
    found = effect(REDUCTIONS, pool(node("Div", "s c", "y"), more=[weight("c", f32(40000))]), positive(1, 3, 20, 20))
    assert found.repairs == ()


def test_a_sum_that_is_an_output_cannot_be_scaled() -> None:
    proto = pool(node("Div", "s c", "y"), more=[weight("c", f32(40000))])
    proto.graph.output.append(value("s", shape=None))
    assert effect(REDUCTIONS, proto, positive(1, 3, 200, 200, scale=9.0)).repairs == ()


@pytest.mark.parametrize("op", ["Log", "Tanh", "Reciprocal", "Sin"])
def test_a_sum_that_is_bent_cannot_be_scaled(op: str) -> None:
    assert effect(REDUCTIONS, pool(node(op, "s", "y")), positive(1, 3, 200, 200, scale=9.0)).repairs == ()


def test_what_overflows_in_fp16_before_the_sum_is_another_matter() -> None:
    proto = pool(node("Div", "s c", "y"), more=[weight("c", f32(40000))])
    assert effect(REDUCTIONS, proto, positive(1, 3, 200, 200, scale=1e6)).repairs == ()


@pytest.mark.parametrize("shape", ["rms_norm_overflow", "layer_norm_overflow", "l2_norm_of_small_vectors"])
def test_norms_are_left_to_their_own_rules(shape: str) -> None:
    zoo = SHAPES[shape]()
    loaded = load(zoo.model)
    assert REDUCTIONS.find(loaded, ranges_of(loaded, zoo.inputs[:2])) == ()


def test_without_ranges_nothing_is_found() -> None:
    assert REDUCTIONS.find(load(SHAPES["gram_matrix"]().model), Ranges()) == ()


def test_a_place_that_is_gone_is_refused() -> None:
    zoo = SHAPES["gram_matrix"]()
    loaded = load(zoo.model)
    (repair,) = REDUCTIONS.find(loaded, ranges_of(loaded, zoo.inputs[:2]))
    other = load(SHAPES["healthy_mlp"]().model)
    assert repaired(other, [(REDUCTIONS, repair)])[1] == ()


def test_a_reader_that_came_meanwhile_keeps_the_scale_away() -> None:
    """a / sqrt(m + 1e-12) was rewritten and reads the mean itself: what scales the mean does not know of that."""
    nodes = [
        node("Mul", "x x", "q"), node("ReduceSum", "q axes", "m"), node("Add", "m eps", "g"),
        node("Sqrt", "g", "r"), node("Abs", "x", "a"), node("Div", "a r", "y"),
    ]  # fmt: skip
    weights = [weight("axes", np.array([-1])), weight("eps", f32(1e-12)[0])]
    loaded = load(model(nodes, [value("x", shape=("n", 300))], [value("y", shape=None)], weights))
    ranges = ranges_of(loaded, positive(2, 300, scale=150.0))
    division = next(r for r in EPSILONS.find(loaded, ranges) if r.parameters["kind"] == "division")
    (scaled,) = REDUCTIONS.find(loaded, ranges)
    assert repaired(loaded, [(EPSILONS, division), (REDUCTIONS, scaled)])[1] == (division,)
    assert repaired(loaded, [(REDUCTIONS, scaled)])[1] == (scaled,)


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(2, 3000),
    scale=st.floats(1.0, 3e4),
    signed=st.booleans(),
    spread=st.booleans(),
    how=st.sampled_from(["mean", "gram", "length", "l1"]),
)
def test_no_bit_of_fp32_changes(count: int, scale: float, signed: bool, spread: bool, how: str) -> None:
    rng = np.random.default_rng(count)
    x = scale * rng.uniform(-1.0 if signed else 0.1, 1.0, (3, count))
    x = x * 10.0 ** rng.uniform(-9, 0, x.shape) if spread else x
    axes, by = weight("axes", np.array([-1])), weight("by", f32(count * scale))
    nodes = {
        "mean": [node("ReduceSum", "x axes", "s"), node("Div", "s by", "y")],
        "l1": [node("ReduceL1", "x", "s", axes=[-1]), node("Div", "s by", "y")],
        "gram": [node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "x t", "s"), node("Div", "s by", "y")],
        "length": [node("Mul", "x x", "q"), node("ReduceSum", "q axes", "s"), node("Sqrt", "s", "y")],
    }[how]
    proto = model(nodes, [value("x", shape=(3, count))], [value("y", shape=None)], [axes, by])
    found = effect(REDUCTIONS, proto, [{"x": x.astype(np.float32)}])
    assert found.bit_identical
