"""The emulation against scalar references: operators to the bit, edges rounded where they must be and only there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto

from benchmarks.emulation_cost import switchable
from halfwise import emulate as emulation
from halfwise.emit.typed_onnx import typed_proto
from halfwise.emulate import Emulator, carry_feeds, emulate
from halfwise.engine.ort import Session, check_casts
from halfwise.errors import InputError
from halfwise.formats import Format, round_to
from halfwise.model import load
from halfwise.precision import Assignment
from halfwise.profiles import ORT_CUDA, profile_named
from halfwise.sites import Sites
from tests.backend_cases import same_bits
from tests.build import f32, graph, model, node, value, weight
from tests.dags import FEEDS, Dag, dags
from tests.scalar_formats import round_array, round_scalar

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


# -- mixed decisions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", NARROW)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_tensor_is_rounded_where_it_is_narrow_and_nowhere_else(fmt: Format, data: st.DataObject) -> None:
    dag, feeds = data.draw(dags(fmt)), data.draw(FEEDS)
    expected = dag.answer(feeds)
    got = Emulator().session(dag.loaded()).run(feeds)
    assert set(got) == set(dag.outputs)
    for name, array in got.items():
        assert same_bits(array, expected[name]), name


@given(dag=dags(), feeds=FEEDS)
@settings(max_examples=100, deadline=None)
def test_the_typed_model_read_back_means_the_same(dag: Dag, feeds: dict[str, Array]) -> None:
    assignment = dag.loaded()
    typed = typed_proto(assignment)
    if dag.io is not Format.FP32:
        feeds = {name: round_array(feed, dag.io) for name, feed in feeds.items()}
    given = {name: feed.astype(dag.io.dtype) for name, feed in feeds.items()}
    one = Emulator().session(assignment).run(feeds)
    other = Emulator().session(Assignment(Sites(load(typed)), {})).run(carry_feeds(given))
    assert all(same_bits(one[name], other[name]) for name in one)


@given(dag=dags(), feeds=FEEDS)
@settings(max_examples=30, deadline=None)
def test_the_self_contained_model_is_the_session(dag: Dag, feeds: dict[str, Array]) -> None:
    assignment = dag.loaded()
    proto = emulate(assignment)
    onnx.checker.check_model(proto)
    kinds = {t.data_type for t in proto.graph.initializer} | {
        v.type.tensor_type.elem_type for v in (*proto.graph.input, *proto.graph.output)
    }
    assert kinds <= {TensorProto.FLOAT}
    one, other = Session(proto).run(feeds), Emulator().session(assignment).run(feeds)
    assert all(same_bits(one[name], other[name]) for name in one)


def test_a_weight_shared_by_both_formats_is_rounded_for_one_of_them() -> None:
    proto = model(
        [node("Add", "x w", "a"), node("Add", "x w", "b")],
        [value("x", shape=[1])],
        [value("a", shape=[1]), value("b", shape=[1])],
        [weight("w", f32(1 / 3))],
    )
    sites = Sites(load(proto))
    narrow = Assignment(sites, {sites.all[0].node: Format.FP16})
    got = Emulator().session(narrow).run({"x": f32(0)})
    assert got["a"] == np.float32(np.float16(1 / 3))
    assert got["b"] == np.float32(1 / 3)


def test_fp16_and_bf16_in_one_model() -> None:
    """Range from one, precision from the other: 70000 fits BF16 only, 1.001 FP16 only."""
    proto = model(
        [node("Mul", "x w", "big"), node("Add", "x x", "small")],
        [value("x", shape=[1])],
        [value("big", shape=[1]), value("small", shape=[1])],
        [weight("w", f32(69888.0))],
    )
    sites = Sites(load(proto))
    formats = {sites.all[0].node: Format.BF16, sites.all[1].node: Format.FP16}
    got = Emulator().session(Assignment(sites, formats)).run({"x": f32(1.001)})
    assert got["big"] == round_array(f32(69888.0), Format.BF16)[0]
    assert got["small"] == 2 * np.float32(np.float16(1.001))


def test_bf16_is_used_only_where_its_schema_has_it() -> None:
    """Opset 13's Add takes BF16, its MaxPool does not; FP16 both."""
    proto = model(
        [node("Add", "x x", "a"), node("MaxPool", "a", "y", kernel_shape=[1])],
        [value("x", shape=[1, 1, 1])],
        [value("y", shape=[1, 1, 1])],
        opset=13,
    )
    sites = Sites(load(proto))
    third = f32(1 / 3)[None, None]
    mixed = Assignment(sites, dict.fromkeys((s.node for s in sites.free), Format.BF16))
    typed = typed_proto(mixed)
    onnx.checker.check_model(typed, full_check=True)
    got = Emulator().session(mixed).run({"x": third})["y"]
    assert got == 2 * round_array(third, Format.BF16)
    assert [site.free for site in Sites(load(proto), Format.BF16).all] == [True, False]


def test_weights_are_clamped_as_tensorrt_clamps_them() -> None:
    numbers_in = f32(1e6, -3e38, 65519, 65520, 1e-8, 2.0**-25, 3e-8, np.inf, -np.inf, np.nan)
    proto = model(
        [node("Add", "x w", "y")], [value("x", shape=[10])], [value("y", shape=[10])], [weight("w", numbers_in)]
    )
    got = Emulator().session(Assignment.all_narrow(Sites(load(proto)))).run({"x": np.zeros(10, np.float32)})["y"]
    expected = f32(65504, -65504, 65504, 65504, 0, 0, 2.0**-24, np.inf, -np.inf, np.nan)
    assert same_bits(got, expected)


def test_a_large_weight_is_rounded_as_a_small_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inline, by memory, and kept narrow to be widened in every run."""
    rng = np.random.default_rng(5)
    array = (rng.normal(size=(64, 64)) * np.geomspace(1e-9, 1e9, 64)).astype(np.float32)
    proto = model(
        [node("Add", "x w", "y"), node("Gather", "x i", "z")],
        [value("x", shape=[64, 64])],
        [value("y", shape=[64, 64]), value("z", shape=[1000, 64])],
        [weight("w", array), weight("i", np.arange(1000) % 64)],
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    feed = {"x": np.zeros((64, 64), np.float32)}
    clamped = np.clip(array, -65504, 65504)
    answers = [Emulator().session(assignment).run(feed)]
    monkeypatch.setattr(emulation, "INLINE_ELEMENTS", 1 << 20)
    answers.append(Emulator().session(assignment).run(feed))
    monkeypatch.setattr(emulation, "INLINE_ELEMENTS", 1)
    monkeypatch.setattr(emulation, "LEAN_BYTES", 0)
    answers.append(Emulator().session(assignment).run(feed))
    for answer in answers:
        assert np.array_equal(answer["y"], round_array(clamped, Format.FP16))
        assert answer["z"].shape == (1000, 64)


def test_a_constant_fill_is_what_the_typed_model_holds() -> None:
    fill = onnx.helper.make_tensor("", TensorProto.FLOAT, [1], [-1e9])
    proto = model(
        [node("ConstantOfShape", "s", "mask", value=fill), node("Add", "x mask", "y")],
        [value("x", shape=[2]), value("s", TensorProto.INT64, [1])],
        [value("y", shape=None)],
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    feeds = {"x": f32(0, 8), "s": np.array([2])}
    assert np.array_equal(Emulator().session(assignment).run(feeds)["y"], f32(-65504, -65504))
    typed = typed_proto(assignment)
    again = Emulator().session(Assignment(Sites(load(typed)), {})).run(feeds)["y"]
    assert np.array_equal(again, f32(-65504, -65504))


# -- parts that are narrow in the model as given ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fmt", "element_type"), [(Format.FP16, TensorProto.FLOAT16), (Format.BF16, TensorProto.BFLOAT16)]
)
def test_what_is_narrow_as_given_is_rounded_without_being_asked(fmt: Format, element_type: int) -> None:
    proto = model(
        [
            node("Cast", "x", "h", to=element_type),
            node("Mul", "h h", "hh"),
            node("Cast", "hh", "f", to=TensorProto.FLOAT),
            node("Add", "f x", "y"),
        ],
        [value("x", shape=[1])],
        [value("y", shape=[1])],
    )
    x = f32(1.2345678)
    half = round_array(x, fmt)
    got = Emulator().session(Assignment(Sites(load(proto)), {})).run({"x": x})["y"]
    assert got == round_array(half * half, fmt) + x


def test_narrow_inputs_are_fed_as_they_are() -> None:
    proto = model(
        [node("Mul", "x x", "y")], [value("x", TensorProto.FLOAT16, [1])], [value("y", TensorProto.FLOAT16, [1])]
    )
    feeds = carry_feeds({"x": np.array([300.0], np.float16)})
    assert feeds["x"].dtype == np.float32
    assert Emulator().session(Assignment(Sites(load(proto)), {})).run(feeds)["y"] == np.inf


# -- control flow ----------------------------------------------------------------------------------------------------


def _if_model() -> onnx.ModelProto:
    """One branch computes with an outer tensor, the other hands it out directly."""
    then = graph([node("Mul", "a a", "t")], [], [value("t", shape=[1])])
    other = graph([], [], [value("a", shape=[1])])
    return model(
        [
            node("Add", "x w", "a"),
            node("If", "c", "b", then_branch=then, else_branch=other),
            node("Add", "b w", "y"),
        ],
        [value("x", shape=[1]), value("c", TensorProto.BOOL, [])],
        [value("y", shape=[1])],
        [weight("w", f32(1 / 3))],
    )


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("kept", range(16))
def test_branches_are_decided_node_by_node(condition: bool, kept: int) -> None:
    sites = Sites(load(_if_model()))
    named = {site.name: site for site in sites.free}
    assert set(named) == {"n_a", "n_t", "n_y", "node_of_a_inner"}
    assert named["n_t"].nested
    keep = frozenset(named[name].node for bit, name in enumerate(sorted(named)) if kept >> bit & 1)
    assignment = Assignment.all_narrow(sites, keep)

    def compute(name: str, function: Callable[..., Array], *reads: Array) -> Array:
        fmt = Format.FP32 if named[name].node in keep else Format.FP16
        return round_array(function(*(round_array(read, fmt) for read in reads)), fmt)

    x, w = f32(1.7), f32(1 / 3)
    a = compute("n_a", np.add, x, w)
    b = compute("n_t", np.multiply, a, a) if condition else compute("node_of_a_inner", np.positive, a)
    y = compute("n_y", np.add, b, w)
    feeds = {"x": x, "c": np.array(condition)}
    assert same_bits(Emulator().session(assignment).run(feeds)["y"], y)
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    Session(typed).run(feeds)
    again = Emulator().session(Assignment(Sites(load(typed)), {})).run(feeds)["y"]
    assert same_bits(again, y)


@pytest.mark.parametrize("narrow", [True, False])
def test_a_loop_carries_fp32_and_rounds_inside(narrow: bool) -> None:
    body = graph(
        [
            node("Mul", "state w", "next"),
            node("Add", "next captured", "seen"),
            node("Identity", "go", "on"),
        ],
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("state", shape=[1])],
        [value("on", TensorProto.BOOL, []), value("next", shape=[1]), value("seen", shape=[1])],
        [weight("w", f32(1.1))],
    )
    proto = model(
        [node("Neg", "x", "captured"), node("Loop", "n - x", "last all", body=body)],
        [value("x", shape=[1]), value("n", TensorProto.INT64, [])],
        [value("last", shape=[1]), value("all", shape=None)],
    )
    sites = Sites(load(proto))
    assert {s.name for s in sites.free} == {"n_captured", "n_next", "n_seen"}
    fmt = Format.FP16 if narrow else Format.FP32
    assignment = Assignment.all_narrow(sites) if narrow else Assignment(sites, {})
    x = f32(1.2345678)
    state, rows, captured = x, [], round_array(-round_array(x, fmt), fmt)
    for _ in range(5):
        state = round_array(round_array(state, fmt) * round_array(f32(1.1), fmt), fmt)
        rows.append(round_array(state + captured, fmt))
    got = Emulator().session(assignment).run({"x": x, "n": np.array(5)})
    assert same_bits(got["last"], state)
    assert same_bits(got["all"], np.stack(rows))
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    again = Emulator().session(Assignment(Sites(load(typed)), {})).run({"x": x, "n": np.array(5)})
    assert same_bits(again["all"], got["all"])


def test_a_scan_rounds_inside() -> None:
    body = graph(
        [node("Add", "total item", "sum"), node("Identity", "sum", "out")],
        [value("total", shape=[1]), value("item", shape=[1])],
        [value("sum", shape=[1]), value("out", shape=[1])],
    )
    proto = model(
        [node("Scan", "zero x", "last all", body=body, num_scan_inputs=1)],
        [value("x", shape=[4, 1])],
        [value("last", shape=[1]), value("all", shape=[4, 1])],
        [weight("zero", f32(0))],
    )
    x = f32(2048, 1, 1, 1)[:, None]
    got = Emulator().session(Assignment.all_narrow(Sites(load(proto)))).run({"x": x})
    assert got["all"].ravel().tolist() == [2048, 2048, 2048, 2048]  # 2049 is a tie; each one is lost
    exact = Emulator().session(Assignment(Sites(load(proto)), {})).run({"x": x})
    assert exact["last"] == 2051


def test_bodies_in_bodies() -> None:
    inner = graph([node("Mul", "s w", "deep")], [], [value("deep", shape=[1])])
    passed = graph([node("Identity", "s", "flat")], [], [value("flat", shape=[1])])
    body = graph(
        [node("If", "go", "r", then_branch=inner, else_branch=passed), node("Identity", "go", "on")],
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("s", shape=[1])],
        [value("on", TensorProto.BOOL, []), value("r", shape=[1])],
    )
    proto = model(
        [node("Loop", "n - x", "y", body=body)],
        [value("x", shape=[1]), value("n", TensorProto.INT64, [])],
        [value("y", shape=[1])],
        [weight("w", f32(1.1))],
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    expected = f32(1.2345678)
    for _ in range(3):
        expected = round_array(round_array(expected, Format.FP16) * np.float32(np.float16(1.1)), Format.FP16)
    feeds = {"x": f32(1.2345678), "n": np.array(3)}
    assert same_bits(Emulator().session(assignment).run(feeds)["y"], expected)
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    assert same_bits(Emulator().session(Assignment(Sites(load(typed)), {})).run(feeds)["y"], expected)


# -- not fooled ------------------------------------------------------------------------------------------------------


def test_the_runtime_hides_an_overflow_that_the_emulation_shows() -> None:
    """300 * 300 is beyond FP16; ONNX Runtime's CPU kernels keep it in FP32 and the typed model looks right there."""
    proto = model(
        [node("Mul", "x x", "square"), node("Sqrt", "square", "y")], [value("x", shape=[1])], [value("y", shape=[1])]
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    feeds = {"x": f32(300)}
    plain = ort.InferenceSession(typed_proto(assignment).SerializeToString(), providers=["CPUExecutionProvider"])
    assert plain.run(None, feeds)[0] == 300
    assert Emulator().session(assignment).run(feeds)["y"] == np.inf


def test_an_overflow_can_end_in_a_silent_zero() -> None:
    proto = model(
        [node("Mul", "x x", "square"), node("Div", "x square", "y")], [value("x", shape=[1])], [value("y", shape=[1])]
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    assert Emulator().session(assignment).run({"x": f32(300)})["y"] == 0


def test_the_runtime_rounds_through_casts_at_every_level() -> None:
    """The pairs the emulation stands on are kept even where every optimisation is on."""
    check_casts()
    proto = model([node("Add", "x x", "a"), node("Add", "a a", "y")], [value("x", shape=[3])], [value("y", shape=[3])])
    assignment = Assignment.all_narrow(Sites(load(proto)))
    whole = ort.InferenceSession(emulate(assignment).SerializeToString(), providers=["CPUExecutionProvider"])
    x = f32(1 + 2.0**-11, 20000, 2.0**-26)
    assert same_bits(whole.run(None, {"x": x})[0], f32(4, np.inf, 0))
    assert same_bits(Emulator().session(assignment).run({"x": x})["y"], f32(4, np.inf, 0))


@pytest.mark.parametrize("branch", [True, False])
@given(dag=dags(), feeds=FEEDS)
@settings(max_examples=15, deadline=None)
def test_what_the_benchmark_compares_with_is_an_emulation_too(branch: bool, dag: Dag, feeds: dict[str, Array]) -> None:
    whole = emulate(dag.loaded())
    one, other = Session(whole).run(feeds), Session(switchable(whole, branch=branch)).run(feeds)
    # ONNX Runtime's Where loses the sign of a zero.
    assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


# -- profiles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_cuda_profile_rounds_before_a_convolution_adds_its_bias(rank: int) -> None:
    proto = model(
        [node("Conv", "x w b", "y")],
        [value("x", shape=[1, 1, *[2] * rank])],
        [value("y", shape=None)],
        [weight("w", np.full((1, 1, *[1] * rank), 1.0, np.float32)), weight("b", f32(1))],
    )
    x = np.full((1, 1, *[2] * rank), 2049.0, np.float32)  # a tie, rounded to 2048
    x[..., 0] = 2051.0  # a tie, rounded to 2052; plus 1 a tie again, rounded to 2052
    assignment = Assignment.all_narrow(Sites(load(proto)))
    strict = Emulator().session(assignment).run({"x": x})["y"]
    cuda = Emulator(ORT_CUDA).session(assignment).run({"x": x})["y"]
    rounded = round_array(x, Format.FP16)
    assert np.array_equal(strict, round_array(rounded + 1, Format.FP16))
    assert np.array_equal(cuda, round_array(round_array(rounded, Format.FP16) + 1, Format.FP16))


def test_the_two_profiles_differ_where_the_product_itself_is_rounded() -> None:
    proto = model(
        [node("Conv", "x w b", "y")],
        [value("x", shape=[1, 2, 1])],
        [value("y", shape=None)],
        [weight("w", np.ones((1, 2, 1), np.float32)), weight("b", f32(1))],
    )
    x = f32(2048, 1)[None, :, None]  # 2049 is lost before the bias, or makes 2050 with it
    assignment = Assignment.all_narrow(Sites(load(proto)))
    assert Emulator().session(assignment).run({"x": x})["y"] == 2050
    assert Emulator(ORT_CUDA).session(assignment).run({"x": x})["y"] == 2048


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(InputError, match="there is no profile 'cuda'; known are strict, ort-cuda"):
        profile_named("cuda")
