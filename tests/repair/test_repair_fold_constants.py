"""HW408 folds what depends on constants alone in FP32, and leaves out of sums what cancels in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.model.model import load
from halfwise.repair import Ranges, repaired
from halfwise.repair.fold_constants import FOLD_CONSTANTS
from tests.models.build import f32, model, node, value, weight
from tests.models.zoo import SHAPES
from tests.support.repairing import effect, ranges_of
from tests.support.says import Says


def feeds(scale: float = 1.0, rows: int = 4) -> list[dict[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(6)
    return [{"x": (scale * rng.standard_normal((rows, 8))).astype(np.float32)} for _ in range(3)]


def build(*nodes: onnx.NodeProto, rows: Any = 4, **constants: Any) -> onnx.ModelProto:
    weights = [weight(name, array) for name, array in constants.items()]
    return model(nodes, [value("x", shape=(rows, 8))], [value("y", shape=None)], weights)


# -- folding ----------------------------------------------------------------------------------------------------------


def sine_table() -> onnx.ModelProto:
    """x + sin(outer(positions, rates)), as an exporter writes it with dynamic axes."""
    return build(
        node("Range", "start limit step", "r"), node("Cast", "r", "f", to=TensorProto.FLOAT),
        node("Unsqueeze", "f axes", "u"), node("Mul", "u rates", "p"), node("Sin", "p", "s"), node("Add", "x s", "y"),
        start=np.array(1000), limit=np.array(1004), step=np.array(1), axes=np.array([1]),
        rates=(10000.0 ** -(np.arange(8) / 8)).astype(np.float32),
    )  # fmt: skip


def test_a_sine_table_is_computed_once_in_fp32(says: Says) -> None:
    found = effect(FOLD_CONSTANTS, sine_table(), feeds())
    assert found.before > 1
    assert found.after < 0.2
    assert found.bit_identical
    assert found.ops() == ["Add"]
    says(found.repairs[0].algebra)


def test_a_grid_from_a_known_shape_is_folded() -> None:
    proto = build(
        node("Shape", "x", "d"), node("Gather", "d first", "n"), node("Range", "zero n one", "r"),
        node("Cast", "r", "f", to=TensorProto.FLOAT), node("Div", "f n_f", "g"), node("Unsqueeze", "g axes", "h"),
        node("Mul", "x h", "y"),
        first=np.array(0), zero=np.array(0), one=np.array(1), n_f=np.float32(3.0), axes=np.array([1]),
    )  # fmt: skip
    found = effect(FOLD_CONSTANTS, proto, feeds())
    assert found.bit_identical
    assert found.ops() == ["Mul"]


def test_the_shape_of_a_constant_is_computed_where_inference_does_not_know_it() -> None:
    proto = build(
        node("Ceil", "r", "rc"), node("Cast", "rc", "times", to=TensorProto.INT64), node("Tile", "t times", "tt"),
        node("Shape", "tt", "d"), node("Expand", "one d", "e"), node("Sin", "e", "s"), node("Mul", "x s", "y"),
        rows=1, t=np.zeros((2, 8), np.float32), r=f32(1.5, 1.0), one=f32(1.0),
    )  # fmt: skip
    found = effect(FOLD_CONSTANTS, proto, feeds(rows=1))
    assert found.ops() == ["Mul"]
    assert found.answers[0]["y"].shape == (4, 8)
    assert found.bit_identical


def test_a_grid_from_an_open_shape_stays() -> None:
    proto = build(
        node("Shape", "x", "d"), node("Cast", "d", "f", to=TensorProto.FLOAT), node("ReduceSum", "f", "g"),
        node("Mul", "x g", "y"), rows="n",
    )  # fmt: skip
    assert FOLD_CONSTANTS.find(load(proto), Ranges()) == ()


def test_what_only_moves_constants_is_left_to_the_compiler() -> None:
    proto = build(node("Transpose", "w", "t"), node("MatMul", "x t", "y"), w=np.ones((5, 8), np.float32))
    assert FOLD_CONSTANTS.find(load(proto), Ranges()) == ()


@pytest.mark.parametrize("op", ["RandomUniformLike", "Dropout"])
def test_what_is_random_stays(op: str) -> None:
    proto = build(node("Exp", "w", "e"), node(op, "e", "r"), node("Add", "x r", "y"), w=np.ones((4, 8), np.float32))
    names = [name for repair in FOLD_CONSTANTS.find(load(proto), Ranges()) for name in repair.nodes]
    assert names == ["n_e"]


def test_a_constant_that_is_an_output_stays() -> None:
    proto = build(node("Exp", "w", "e"), node("Add", "x e", "y"), w=np.ones((4, 8), np.float32))
    proto.graph.output.append(value("e", shape=(4, 8)))
    assert FOLD_CONSTANTS.find(load(proto), Ranges()) == ()


def test_a_table_too_large_to_store_stays() -> None:
    proto = build(
        node("Expand", "w big", "e"), node("Exp", "e", "f"), node("ReduceMax", "f", "m", keepdims=0),
        node("Add", "x m", "y"),
        w=f32(1.0), big=np.array([1 << 23]),
    )  # fmt: skip
    (repair,) = FOLD_CONSTANTS.find(load(proto), Ranges())
    assert repair.parameters["value"] == "m"  # only what it comes to is stored


def test_shared_constants_stay_for_others() -> None:
    proto = build(
        node("Exp", "w", "e"), node("Add", "x e", "a"), node("Add", "a w", "y"), w=np.full((4, 8), 2, np.float32)
    )
    found = effect(FOLD_CONSTANTS, proto, feeds())
    assert found.bit_identical
    assert found.ops() == ["Add", "Add"]


# -- sums -------------------------------------------------------------------------------------------------------------


def test_corners_of_a_box_without_its_centre() -> None:
    """(c + r) - (c - l) with centres of thousands of pixels."""
    proto = build(
        node("Mul", "x far", "c"), node("Exp", "x", "l"), node("Tanh", "x", "r"), node("Add", "c r", "right"),
        node("Sub", "c l", "left"), node("Sub", "right left", "y"), far=np.float32(3000.0),
    )  # fmt: skip
    found = effect(FOLD_CONSTANTS, proto, feeds())
    assert found.before > 1
    assert found.after < 0.2
    assert found.deviation < FOLD_CONSTANTS.bound
    assert found.ops() == ["Exp", "Tanh", "Add"]


def test_offsets_combine() -> None:
    proto = build(
        node("Add", "x far", "a"), node("Sub", "a near", "y"), far=np.float32(4000.0), near=np.float32(3990.0)
    )
    found = effect(FOLD_CONSTANTS, proto, feeds())
    assert found.before > 1
    assert found.after < 0.2
    assert found.deviation < FOLD_CONSTANTS.bound
    assert found.ops() == ["Add"]


def test_offsets_that_cancel_leave_the_value() -> None:
    proto = build(node("Add", "x far", "a"), node("Sub", "a far", "z"), node("Neg", "z", "y"), far=np.float32(4096.0))
    found = effect(FOLD_CONSTANTS, proto, feeds())
    assert found.ops() == ["Identity", "Neg"]
    assert found.deviation < FOLD_CONSTANTS.bound


_NOT = [
    [node("Add", "x near", "a"), node("Sub", "a near", "y")],  # nothing large goes
    [node("Add", "x far", "a"), node("Add", "a near", "y")],  # nothing cancels
    [node("Mul", "x far", "a"), node("Sub", "a near", "y")],  # a product, not a sum
    [node("Exp", "x", "e"), node("Add", "e far", "a"), node("Neg", "a", "b"), node("Sub", "b far", "y")],
]


@pytest.mark.parametrize("nodes", _NOT)
def test_near_misses_are_left_alone(nodes: list[onnx.NodeProto]) -> None:
    loaded = load(build(*nodes, far=np.float32(4000.0), near=np.float32(3.0)))
    assert FOLD_CONSTANTS.find(loaded, ranges_of(loaded, feeds())) == ()


def test_a_term_that_gives_the_shape_stays() -> None:
    proto = build(
        node("Mul", "x far", "c"), node("ReduceMax", "x", "m", axes=[1]), node("Add", "c m", "a"),
        node("Sub", "a c", "y"),
        far=np.float32(4000.0),
    )  # fmt: skip
    loaded = load(proto)
    assert FOLD_CONSTANTS.find(loaded, ranges_of(loaded, feeds())) == ()


def test_a_place_that_is_gone_is_refused() -> None:
    other = load(SHAPES["healthy_mlp"]().model)
    changed = load(build(node("Add", "x far", "a"), node("Add", "a far", "y"), far=np.float32(1.0)))
    sums = load(
        build(node("Add", "x far", "a"), node("Sub", "a near", "y"), far=np.float32(4e3), near=np.float32(3990))
    )
    for source in (load(sine_table()), sums):
        (repair,) = FOLD_CONSTANTS.find(source, ranges_of(source, feeds()))
        for target in (other, changed):
            assert repaired(target, [(FOLD_CONSTANTS, repair)])[1] == ()


@settings(max_examples=30, deadline=None)
@given(far=st.floats(100, 60000), near=st.floats(-3, 3), scale=st.floats(0.01, 3.0))
def test_the_fp32_answer_stays_within_the_bound(far: float, near: float, scale: float) -> None:
    proto = build(
        node("Mul", "x k", "c"), node("Add", "c far", "a"), node("Add", "x far", "b"), node("Sub", "a b", "d"),
        node("Sub", "d near", "y"), far=np.float32(far), near=np.float32(near), k=np.float32(3.0),
    )  # fmt: skip
    found = effect(FOLD_CONSTANTS, proto, feeds(scale))
    largest = max(float(np.abs(answer["y"]).max()) for answer in found.answers)
    worst = max(float(np.abs(a["y"] - b["y"]).max()) for a, b in zip(found.answers, found.references, strict=True))
    assert worst <= 4 * np.spacing(np.float32(far)) + 1e-6 * largest  # what FP32 itself rounded away


# -- boxes as exporters write them ------------------------------------------------------------------------------------


def stacked(kind: str) -> onnx.ModelProto:
    """The width of boxes whose corners were stacked before: c + w / 2 and c - w / 2, taken out again."""
    corners = [
        node("Mul", "x far", "c"), node("Exp", "x", "w"), node("Mul", "w half", "h"), node("Sub", "c h", "left"),
        node("Add", "c h", "right"), node("Neg", "x", "other"),
    ]  # fmt: skip
    constants: dict[str, Any] = {"far": np.float32(3000.0), "half": np.float32(0.5)}
    if kind == "cat":
        constants |= {name: np.array([number]) for name, number in (("n0", 0), ("n8", 8), ("n16", 16), ("last", -1))}
        corners += [
            node("Concat", "left right", "both", axis=-1), node("Slice", "both n8 n16 last", "r"),
            node("Slice", "both n0 n8 last", "l"),
        ]  # fmt: skip
    else:
        constants |= {"zero": np.array(0), "two": np.array(2), "last": np.array([-1])}
        parts = "left other right"
        corners += [node("Unsqueeze", f"{part} last", f"{part}1") for part in parts.split()]
        corners += [node("Concat", "left1 other1 right1", "both", axis=-1)]
        if kind == "stack":
            corners += [node("Gather", "both two", "r", axis=-1), node("Gather", "both zero", "l", axis=2)]
        else:
            corners += [node("Split", "both", "l1 o1 r1", axis=-1)]
            corners += [node("Squeeze", f"{part}1 last", part) for part in ("l", "r")]
    return build(*corners, node("Sub", "r l", "y"), **constants)


@pytest.mark.parametrize("kind", ["cat", "stack", "unbind"])
def test_widths_of_stacked_boxes(kind: str) -> None:
    found = effect(FOLD_CONSTANTS, stacked(kind), feeds())
    assert len(found.repairs) == 1
    assert found.before > 1
    assert found.after < 0.2
    assert found.deviation < FOLD_CONSTANTS.bound
    assert "Concat" not in found.ops()


def test_boxes_in_pixels_of_the_image() -> None:
    """((x + grid) * stride + w / 2) - ((x + grid) * stride - w / 2), all times a scale: the decoding of a detector."""
    proto = build(
        node("Add", "x grid", "g"), node("Mul", "g stride", "c"), node("Exp", "x", "e"), node("Mul", "e stride", "w"),
        node("Div", "w two", "h"), node("Add", "c h", "b"), node("Sub", "c h", "a"), node("Mul", "b scale", "b1"),
        node("Mul", "a scale", "a1"), node("Sub", "b1 a1", "y"),
        grid=np.arange(32, dtype=np.float32).reshape(4, 8) * 8, stride=np.float32(8.0), two=np.float32(2.0),
        scale=np.float32(1.5),
    )  # fmt: skip
    found = effect(FOLD_CONSTANTS, proto, feeds())
    assert len(found.repairs) == 1
    assert found.after < found.before / 2
    assert found.deviation < FOLD_CONSTANTS.bound
    assert "Add" not in found.ops() or found.ops().count("Add") < 2


_UNLIKE = {
    "another part": ("Slice", "both n4 n12 last", "Slice", "both n0 n8 last"),
    "every second": ("Slice", "both n8 n16 last two", "Slice", "both n0 n8 last"),
}


@pytest.mark.parametrize("name", _UNLIKE)
def test_parts_that_are_no_operand_are_left_alone(name: str) -> None:
    one, read, other, read_other = _UNLIKE[name]
    numbers = {"n0": 0, "n4": 4, "n8": 8, "n12": 12, "n16": 16, "last": -1, "two": 2}
    constants = {word: np.array([number]) for word, number in numbers.items() if word in f"{read} {read_other}"}
    proto = build(
        node("Mul", "x far", "c"), node("Exp", "x", "w"), node("Sub", "c w", "left"), node("Add", "c w", "right"),
        node("Concat", "left right", "both", axis=-1), node(one, read, "r"), node(other, read_other, "l"),
        node("ReduceSum", "r", "rs"), node("ReduceSum", "l", "ls"), node("Sub", "rs ls", "y"),
        far=np.float32(3000.0), **constants,
    )  # fmt: skip
    assert not [r for r in FOLD_CONSTANTS.find(load(proto), Ranges()) if r.parameters["kind"] == "recentre"]
