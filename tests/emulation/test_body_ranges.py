"""What is counted inside branches and loops, against the same computed round by round in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise.core.counting import count
from halfwise.verbs.trace import TensorTrace, trace
from tests.models.build import f32, graph, model, node, value, weight

Array = np.ndarray[Any, Any]


def told(proto: onnx.ModelProto, feed: dict[str, Array]) -> dict[str, TensorTrace]:
    return {tensor.name: tensor for tensor in trace(proto, [feed]).tensors}


def same(seen: TensorTrace, rounds: list[Array]) -> None:
    """Numbers of all rounds together."""
    whole = np.concatenate([each.reshape(-1) for each in rounds]).astype(np.float32)
    counts = count(whole)
    assert (seen.min, seen.max) == pytest.approx((counts.min, counts.max), rel=1e-6)
    assert seen.over == pytest.approx(counts.overflow / whole.size)
    assert seen.below_normal == pytest.approx((counts.subnormal + counts.underflow) / whole.size)
    assert seen.below_subnormal == pytest.approx(counts.underflow / whole.size)
    assert seen.nonfinite == pytest.approx(counts.nonfinite / whole.size)


def body(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return graph(
        [*nodes, node("Identity", "go", "on")],
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("h", shape=[3])],
        [value("on", TensorProto.BOOL, []), value("next", shape=[3])],
        [weight("k", np.float32(30.0))],
    )


def looped(inside: onnx.GraphProto, rounds: int, opset: int) -> onnx.ModelProto:
    return model(
        [node("Loop", "n - x", "y", body=inside)],
        [value("x", shape=[3])],
        [value("y", shape=[3])],
        [weight("n", np.array(rounds, np.int64))],
        opset=opset,
    )


@pytest.mark.parametrize("opset", [11, 17, 21])
def test_the_rounds_of_a_loop(opset: int) -> None:
    x = f32(1.0, -1e-7, 0.0)
    tensors = told(looped(body(node("Mul", "h k", "grown"), node("Neg", "grown", "next")), 5, opset), {"x": x})
    h, grown = x, list[Array]()
    for _ in range(5):
        grown.append(h * np.float32(30))
        h = -grown[-1]
    same(tensors["grown"], grown)
    assert tensors["grown"].node == "n_grown"
    assert tensors["grown"].over > 0


def test_a_loop_that_makes_no_round_saw_nothing() -> None:
    assert "next" not in told(looped(body(node("Mul", "h k", "next")), 0, 17), {"x": f32(1, 2, 3)})


@pytest.mark.parametrize("sign", [1, -1])
def test_the_branch_that_is_taken(sign: int) -> None:
    then = graph([node("Exp", "x", "e"), node("Neg", "e", "t")], [], [value("t", shape=[3])])
    other = graph([node("Log", "x", "o")], [], [value("o", shape=[3])])
    proto = model(
        [
            node("ReduceSum", "x", "s", keepdims=0),
            node("Greater", "s zero", "c"),
            node("If", "c", "y", then_branch=then, else_branch=other),
        ],
        [value("x", shape=[3])],
        [value("y", shape=[3])],
        [weight("zero", np.float32(0))],
    )
    x = sign * f32(1, 20, 3)
    tensors = told(proto, {"x": x})
    assert ("e" in tensors, "o" in tensors) == (sign > 0, sign < 0)
    with np.errstate(invalid="ignore"):
        same(tensors["e" if sign > 0 else "o"], [np.exp(x) if sign > 0 else np.log(x)])


def test_a_branch_in_a_loop() -> None:
    then = graph([node("Mul", "h k", "large")], [], [value("large", shape=[3])])
    other = graph([node("Div", "h k", "small")], [], [value("small", shape=[3])])
    inside = body(
        node("ReduceMax", "h", "top", keepdims=0),
        node("Less", "top k", "c"),
        node("If", "c", "next", then_branch=then, else_branch=other),
    )
    tensors = told(looped(inside, 4, 17), {"x": f32(1, 2, 3)})
    h, large, small = f32(1, 2, 3), list[Array](), list[Array]()
    for _ in range(4):
        into = large if h.max() < 30 else small
        into.append(h * np.float32(30) if h.max() < 30 else h / np.float32(30))
        h = into[-1]
    same(tensors["large"], large)
    same(tensors["small"], small)
    same(tensors["next"], [h for pair in zip(large, small, strict=True) for h in pair])


def test_a_scan() -> None:
    inside = graph(
        [node("Add", "total item", "sum"), node("Mul", "sum sum", "out")],
        [value("total", shape=[1]), value("item", shape=[1])],
        [value("sum", shape=[1]), value("out", shape=[1])],
    )
    proto = model(
        [node("Scan", "zero x", "last all", body=inside, num_scan_inputs=1, scan_output_axes=[0])],
        [value("x", shape=[4, 1])],
        [value("last", shape=[1]), value("all", shape=[4, 1])],
        [weight("zero", f32(0))],
    )
    x = f32(100, 200, 300, 1e-3)[:, None]
    tensors = told(proto, {"x": x})
    same(tensors["sum"], list(np.cumsum(x, axis=0, dtype=np.float32)))
    same(tensors["out"], list(np.cumsum(x, axis=0, dtype=np.float32) ** 2))
