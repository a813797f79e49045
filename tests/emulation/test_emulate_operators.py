"""Each operator emulated by itself, to the bit, against scalar references."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from halfwise.core.formats import Format, round_to
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.ort import Session
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import f32, model, node, value, weight
from tests.support.backend_cases import same_bits
from tests.support.scalar_formats import round_array, round_scalar

Array = NDArray[np.float32]
NARROW = (Format.FP16, Format.BF16)


# -- rounding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", NARROW)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=64))
@example([0x7F800001, 0xFFC00000, 0x7F800000, 0xFF800000, 0x80000000, 1, 0x33000000, 0x33000001, 0x477FEFFF])
def test_round_to_is_the_format_by_definition(fmt: Format, bits: list[int]) -> None:
    array = np.array(bits, dtype=np.uint32).view(np.float32)
    assert same_bits(round_to(array, fmt), np.array([round_scalar(b, fmt) for b in bits], dtype=np.float32))


@pytest.mark.parametrize("fmt", NARROW)
def test_every_number_of_a_format_is_its_own_rounding(fmt: Format) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(fmt.dtype).astype(np.float32)
    assert same_bits(round_array(every, fmt), every)


# -- one operator ----------------------------------------------------------------------------------------------------


def numbers(top: float = 3.4e38) -> st.SearchStrategy[float]:
    """Any FP32 number, and many that lie on or beside a tie of FP16 or BF16."""

    def beside(bits: int, nudge: int, drop: int) -> float:
        word = np.array([(bits << drop | 1 << drop - 1) + nudge & 0xFFFFFFFF], dtype=np.uint32)
        return float(word.view(np.float32)[0])

    ties = st.builds(beside, st.integers(0, 2**19 - 1), st.sampled_from([-1, 0, 1]), st.sampled_from([13, 16]))
    small = st.floats(width=32, min_value=-(2.0**-14), max_value=2.0**-14)
    near_top = st.floats(width=32, min_value=65000, max_value=66000)
    whole = st.one_of(ties, small, near_top, st.floats(width=32))
    return whole.map(lambda x: 1.0 if abs(x) > top else x)


def relu(x: Array) -> Array:
    return np.where(x > 0, x, np.float32(0))


def mean2(x: Array, y: Array) -> Array:
    return (x + y) / np.float32(2)


# By operator: the inputs, NumPy's own answer in FP32, attributes. One rounding of FP32 each, so that NumPy and ONNX
# Runtime cannot differ.
ELEMENTWISE: dict[str, tuple[int, Callable[..., Array], dict[str, Any]]] = {
    "Add": (2, np.add, {}),
    "Sub": (2, np.subtract, {}),
    "Mul": (2, np.multiply, {}),
    "Div": (2, np.divide, {}),
    "Sqrt": (1, np.sqrt, {}),
    "Neg": (1, np.negative, {}),
    "Abs": (1, np.abs, {}),
    "Reciprocal": (1, lambda x: np.float32(1) / x, {}),
    "Floor": (1, np.floor, {}),
    "Ceil": (1, np.ceil, {}),
    "Round": (1, np.rint, {}),
    "Identity": (1, lambda x: x, {}),
    "Sum": (2, np.add, {}),
    "Mean": (2, mean2, {}),
    "LeakyRelu": (1, lambda x: np.where(x >= 0, x, x * np.float32(0.125)), {"alpha": 0.125}),
    "PRelu": (2, lambda x, s: np.where(x >= 0, x, x * s), {}),
    "Mod": (2, np.fmod, {"fmod": 1}),
}
# These choose: ONNX leaves open which zero, and what of NaN.
CHOOSING: dict[str, tuple[int, Callable[..., Array], dict[str, Any]]] = {
    "Relu": (1, relu, {}),
    "Max": (2, np.maximum, {}),
    "Min": (2, np.minimum, {}),
    "Sign": (1, np.sign, {}),
    "Clip": (3, lambda x, low, high: np.minimum(np.maximum(x, low), high), {}),
    "ThresholdedRelu": (1, lambda x: np.where(x > np.float32(0.25), x, np.float32(0)), {"alpha": 0.25}),
}


@cache
def single(op: str, inputs: int, fmt: Format) -> Session:
    _, _, attributes = {**ELEMENTWISE, **CHOOSING}[op]
    names = [f"x{i}" for i in range(inputs)]
    shapes: list[Any] = [[] if op == "Clip" and i else ["n"] for i in range(inputs)]
    proto = model(
        [node(op, " ".join(names), "y", **attributes)],
        [value(name, shape=shape) for name, shape in zip(names, shapes, strict=True)],
        [value("y", shape=["n"])],
        opset=22,  # every operator has BF16 there
    )
    sites = Sites(load(proto), fmt)
    assert sites.all[0].free
    return Emulator().session(Assignment.all_narrow(sites))


@pytest.mark.parametrize("fmt", NARROW)
@pytest.mark.parametrize("op", ELEMENTWISE)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_elementwise_operators_are_bit_exact(op: str, fmt: Format, data: st.DataObject) -> None:
    count, function, _ = ELEMENTWISE[op]
    feeds = [np.array(data.draw(st.lists(numbers(), min_size=8, max_size=8)), np.float32) for _ in range(count)]
    with np.errstate(all="ignore"):
        expected = round_array(function(*(round_array(feed, fmt) for feed in feeds)), fmt)
    got = single(op, count, fmt).run({f"x{i}": feed for i, feed in enumerate(feeds)})["y"]
    assert same_bits(got, expected)


@pytest.mark.parametrize("fmt", NARROW)
@pytest.mark.parametrize("op", CHOOSING)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_choosing_operators_are_exact(op: str, fmt: Format, data: st.DataObject) -> None:
    count, function, _ = CHOOSING[op]
    finite = numbers(1e30).map(lambda x: x if x == x else 0.0)
    feeds = [np.array(data.draw(st.lists(finite, min_size=8, max_size=8)), np.float32) for _ in range(count)]
    if op == "Clip":
        low, high = sorted(data.draw(st.tuples(finite, finite)))
        feeds[1:] = [np.float32(low), np.float32(high)]  # type: ignore[list-item]
    expected = round_array(function(*(round_array(feed, fmt) for feed in feeds)), fmt)
    got = single(op, count, fmt).run({f"x{i}": np.asarray(feed) for i, feed in enumerate(feeds)})["y"]
    assert np.array_equal(got, expected)


MOVES: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto], Callable[[Array], Array]]] = {
    "Transpose": ([node("Transpose", "x", "y", perm=[1, 0])], [], lambda x: x.T),
    "Reshape": ([node("Reshape", "x s", "y")], [weight("s", np.array([3, 2]))], lambda x: x.reshape(3, 2)),
    "Flatten": ([node("Flatten", "x", "y", axis=0)], [], lambda x: x.reshape(1, 6)),
    "Slice": (
        [node("Slice", "x a b c", "y")],
        [weight("a", np.array([1])), weight("b", np.array([3])), weight("c", np.array([1]))],
        lambda x: x[:, 1:3],
    ),
    "Gather": ([node("Gather", "x i", "y", axis=1)], [weight("i", np.array([2, 0]))], lambda x: x[:, [2, 0]]),
    "Concat": ([node("Concat", "x x", "y", axis=0)], [], lambda x: np.concatenate([x, x])),
    "Tile": ([node("Tile", "x r", "y")], [weight("r", np.array([1, 2]))], lambda x: np.tile(x, (1, 2))),
    "Expand": ([node("Expand", "x s", "y")], [weight("s", np.array([2, 2, 3]))], lambda x: np.stack([x, x])),
    "Pad": (
        [node("Pad", "x p v", "y")],
        [weight("p", np.array([0, 1, 0, 0])), weight("v", np.float32(0.1))],
        lambda x: np.pad(x, ((0, 0), (1, 0)), constant_values=np.float32(np.float16(0.1))),
    ),
    "Where": ([node("Where", "c x x", "y")], [weight("c", np.array([True, False, True]))], lambda x: x),
    "Unsqueeze": ([node("Unsqueeze", "x a", "y")], [weight("a", np.array([0]))], lambda x: x[None]),
    "ReduceMax": ([node("ReduceMax", "x", "y", axes=[1])], [], lambda x: x.max(1, keepdims=True)),
    "ReduceMin": ([node("ReduceMin", "x", "y", axes=[1])], [], lambda x: x.min(1, keepdims=True)),
    "CumSum of zeros": (
        [node("Mul", "x z", "zero"), node("Add", "x zero", "y")],
        [weight("z", np.float32(0))],
        lambda x: x + 0 * x,
    ),
}


@pytest.mark.parametrize("name", MOVES)
@settings(max_examples=25, deadline=None)
@given(feed=st.lists(numbers(60000.0), min_size=6, max_size=6))
def test_what_is_only_moved_is_rounded_once(name: str, feed: list[float]) -> None:
    nodes, weights, function = MOVES[name]
    proto = model(nodes, [value("x", shape=[2, 3])], [value("y", shape=None)], weights)
    array = np.nan_to_num(np.array(feed, np.float32)).reshape(2, 3)
    got = Emulator().session(Assignment.all_narrow(Sites(load(proto)))).run({"x": array})["y"]
    assert np.array_equal(got, function(round_array(array, Format.FP16)))


@pytest.mark.parametrize("fmt", NARROW)
@given(
    x=st.lists(st.integers(-63, 63), min_size=8, max_size=8),
    w=st.lists(st.integers(-63, 63), min_size=16, max_size=16),
    scale=st.integers(-18, 8),
)
@settings(max_examples=60, deadline=None)
def test_products_and_sums_that_fp32_holds_exactly_are_rounded_once(
    fmt: Format, x: list[int], w: list[int], scale: int
) -> None:
    left = np.ldexp(np.array(x, np.float32).reshape(2, 4), scale).astype(np.float32)
    right = np.array(w, np.float32).reshape(4, 4)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    proto = model(
        [
            node("MatMul", "x w", "product"),
            node("Gemm", "x w b", "affine"),
            node("ReduceSum", "x axes", "total"),
            node("ReduceMean", "x", "mean", axes=[1]),
            node("Pow", "x two", "square"),
            node("GlobalAveragePool", "image", "pooled"),
        ],
        [value("x", shape=[2, 4]), value("image", shape=[1, 2, 2, 2])],
        [value(n, shape=None) for n in ("product", "affine", "total", "mean", "square", "pooled")],
        [
            weight("w", right),
            weight("b", right[0]),
            weight("axes", np.array([1])),
            weight("two", np.float32(2)),
        ],
    )
    session = Emulator().session(Assignment.all_narrow(Sites(load(proto), fmt)))
    got = session.run({"x": left, "image": left.reshape(1, 2, 2, 2)})
    wide = left.astype(np.float64)
    means = wide.mean(1)
    for name, expected in {
        "product": exact,
        "affine": exact + right[0],
        "total": wide.sum(1, keepdims=True),
        "mean": means[:, None],
        "square": wide**2,
        "pooled": means.reshape(1, 2, 1, 1),
    }.items():
        assert np.array_equal(got[name], round_array(expected.astype(np.float32), fmt)), name


def test_an_output_that_the_schema_keeps_in_fp32_is_not_rounded() -> None:
    proto = model(
        [node("LayerNormalization", "x g b", "y mean deviation")],
        [value("x", shape=[1, 3])],
        [value("y", shape=[1, 3]), value("mean", shape=[1, 1]), value("deviation", shape=[1, 1])],
        [weight("g", f32(1, 1, 1)), weight("b", f32(0, 0, 0))],
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    got = Emulator().session(assignment).run({"x": f32(1, 2, 4.001)[None]})
    assert got["mean"] == np.float32((1 + 2 + np.float64(np.float16(4.001))) / 3)
    assert got["mean"] != np.float32(np.float16(got["mean"]))
    assert same_bits(got["y"], round_array(got["y"], Format.FP16))
