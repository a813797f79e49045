"""Positions that are computed in floating point stay exact; what only starts in floats, or chooses by them, is free."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import halfwise
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.emulation.ort import Session
from halfwise.model.model import load
from halfwise.model.operator_slots import INDEX_SLOTS
from halfwise.model.positions import position_arithmetic
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.model.test_operator_slots import DATA
from tests.models.build import f32, graph, model, node, value, weight

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ROWS = 6000

# From x's 6,000 rows: 5,999, which FP16 does not have.
LAST = (
    node("Shape", "x", "s"), node("Gather", "s zero", "rows"), node("Cast", "rows", "f", to=FLOAT),
    node("Sub", "f less", "g"), node("Clip", "g low high", "c"),
)  # fmt: skip
CAST = node("Cast", "c", "i", to=INT64)
LIST = node("Unsqueeze", "i axis", "list")

# How a position may be used; each answers with a float tensor.
ENDS: dict[str, tuple[onnx.NodeProto, ...]] = {
    "Gather": (CAST, node("Gather", "x i", "y")),
    "GatherND": (CAST, LIST, node("GatherND", "x list", "y")),
    "GatherElements": (CAST, LIST, node("Unsqueeze", "list axis", "two"), node("GatherElements", "x two", "y")),
    "ScatterND": (CAST, LIST, node("ScatterND", "x list update", "y")),
    "Slice": (CAST, LIST, node("Slice", "x list end", "y")),
    "Range": (CAST, node("Range", "zero i one", "r"), node("Cast", "r", "y", to=FLOAT)),
    "float Range": (node("Range", "low c one_f", "y"),),
    "Reshape": (CAST, LIST, node("Range", "low c one_f", "r"), node("Reshape", "r list", "y")),
    "Expand": (CAST, LIST, node("Expand", "one_f list", "y")),
    "Tile": (CAST, LIST, node("Tile", "ones list", "y")),
    "TopK": (CAST, LIST, node("TopK", "x list", "y yi", axis=0)),
    "OneHot": (CAST, node("OneHot", "axis i values", "y")),
    "Pad": (CAST, LIST, node("Concat", "list list", "pads", axis=0), node("Pad", "ones pads", "y")),
    "ConstantOfShape": (CAST, LIST, node("ConstantOfShape", "list", "y")),
    "Resize": (
        CAST, LIST, node("Concat", "first first list", "sizes", axis=0), node("Resize", "image - - sizes", "y"),
    ),
    "float Resize": (
        node("Unsqueeze", "c axis", "scale"), node("Concat", "ones ones scale", "scales", axis=0),
        node("Resize", "image - scales", "y"),
    ),
    "Loop": (CAST, node("Loop", "i - low", "y", body=graph(
        [node("Add", "state one_f", "more"), node("Identity", "go", "on")],
        [value("turn", INT64, ()), value("go", TensorProto.BOOL, ()), value("state", shape=())],
        [value("on", TensorProto.BOOL, ()), value("more", shape=())],
    ))),
}  # fmt: skip


def constants() -> list[onnx.TensorProto]:
    arrays: dict[str, Any] = {
        "zero": np.array(0), "one": np.array(1), "axis": np.array([0]), "first": np.array([1]), "end": np.array([ROWS]),
        "less": np.float32(0.25), "low": np.float32(0), "high": np.float32(ROWS - 1), "one_f": np.float32(1),
        "ones": f32(1), "update": f32(7), "values": f32(0, 1), "image": np.ones((1, 1, 1), np.float32),
    }  # fmt: skip
    return [weight(name, array) for name, array in arrays.items()]


def ending(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    answer = next(v for n in nodes for v in n.output if v == "y")
    shape = None if nodes[-1].op_type != "Loop" else ()
    return model([*LAST, *nodes], [value("x", shape=("n", 1))], [value(answer, shape=shape)], constants())


@pytest.mark.parametrize("end", ENDS)
def test_a_position_is_exact_however_it_is_used(end: str) -> None:
    """All that may be narrow is: the typed model gives FP32's shape, and of moved values FP32's rows."""
    proto = ending(*ENDS[end])
    feed = {"x": np.zeros((ROWS, 1), np.float32)}
    feed["x"][ROWS - 1] = 3.0
    sites = Sites(load(proto))
    assert all(not sites.of[sites.model.node_by_name[name]].free for name in ("n_f", "n_g", "n_c"))
    want = Session(proto).run(feed)["y"]
    got = Session(typed_proto(Assignment.all_narrow(sites))).run(feed)["y"]
    assert got.shape == want.shape
    if end in ("Gather", "GatherND", "GatherElements", "ScatterND", "Slice", "TopK"):
        assert np.array_equal(got, want)


def found(*nodes: onnx.NodeProto, count: float = 2048.0, **others: Any) -> set[str]:
    """The outputs of the nodes that compute positions; x is a network's input, w its weight."""
    weights = [*constants(), weight("w", np.ones((4, 4), np.float32)), *(weight(k, v) for k, v in others.items())]
    inputs = [value("x", shape=(2, 4)), value("ids", INT64, (2,)), value("t", shape=(ROWS, 4))]
    proto = model(list(nodes), inputs, [value("y", shape=None)], weights)
    return {each.outputs[0].name or "" for each in position_arithmetic(load(proto), count)}


NETWORK = (node("MatMul", "x w", "m"), node("Sigmoid", "m", "p"))
ROW = (node("Floor", "q", "b"), node("Cast", "b", "i", to=INT64), node("Gather", "t i", "y"))


def test_behind_a_network_positions_that_the_format_does_not_count_to() -> None:
    assert found(*NETWORK, node("Mul", "p high", "q"), *ROW) == {"q", "b"}
    assert found(*NETWORK, node("Mul", "p k", "q"), *ROW, k=np.float32(100)) == set()
    assert found(*NETWORK, node("Mul", "p k", "q"), *ROW, k=np.float32(300), count=256.0) == {"q", "b"}


def test_a_network_that_is_scaled_by_a_size() -> None:
    size = (node("Shape", "t", "s"), node("Gather", "s zero", "n"), node("Cast", "n", "f", to=FLOAT))
    assert found(*NETWORK, *size, node("Mul", "p f", "q"), *ROW) == {"f", "q", "b"}


def test_no_bound_is_not_a_bound() -> None:
    clip = node("Clip", "p low most", "q")
    assert found(*NETWORK, clip, *ROW, most=np.float32(np.finfo(np.float32).max)) == set()


def test_positions_that_are_given_as_inputs() -> None:
    assert found(node("Mul", "x k", "q"), *ROW, k=np.float32(0.5)) == {"q", "b"}


def test_places_of_the_largest_are_divided() -> None:
    """A detector's decoder: the row of a place is its number over the width."""
    nodes = (
        node("TopK", "x first", "v places", axis=1), node("Cast", "places", "f", to=FLOAT), node("Div", "f k", "q"),
        *ROW,
    )  # fmt: skip
    assert found(*nodes, k=np.float32(80)) == {"f", "q", "b"}


def test_buckets_of_distances() -> None:
    """Relative positions as T5 has them: logarithms of integers choose a row."""
    nodes = (
        node("Sub", "ids one", "d"), node("Abs", "d", "a"), node("Cast", "a", "f", to=FLOAT), node("Log", "f", "l"),
        node("Mul", "l k", "q"), node("Cast", "q", "b", to=INT64), node("Less", "a eight", "near"),
        node("Where", "near a b", "bucket"), node("Gather", "t bucket", "y"),
    )  # fmt: skip
    assert found(*nodes, k=np.float32(5.77), eight=np.array(8)) == {"f", "l", "q"}


def test_positions_counted_by_a_mask() -> None:
    nodes = (node("CumSum", "x one", "c"), node("Cast", "c", "i", to=INT64), node("Gather", "t i", "y"))
    assert found(*nodes) == {"c"}


@pytest.mark.parametrize(
    "nodes",
    [
        (node("MatMul", "x w", "m"), node("ArgMax", "m", "i", axis=1), node("Gather", "t i", "y")),
        (node("Cast", "x", "i", to=INT64), node("Gather", "t i", "y")),
        (node("Gather", "t ids", "e"), node("Mul", "e e", "q"), node("Relu", "q", "y")),
        (
            node("Gather", "w ids", "e"), node("MatMul", "e w", "m"), node("Exp", "m", "q"),
            node("Cast", "q", "i", to=INT64), node("Gather", "t i", "y"),
        ),
        (
            node("Mul", "x x", "q"), node("Greater", "q low", "b"), node("NonZero", "b", "i"),
            node("Gather", "t i", "y"),
        ),
        (node("MatMul", "x w", "m"), node("Cast", "m", "i", to=INT64), node("Cast", "i", "y", to=FLOAT)),
    ],
)  # fmt: skip
def test_what_chooses_by_values_is_no_position(nodes: tuple[onnx.NodeProto, ...]) -> None:
    assert found(*nodes) == set()


def test_the_job_says_why_and_keeps_nothing_else() -> None:
    nodes = [*LAST, CAST, node("Gather", "t i", "r"), node("MatMul", "x w", "m"), node("Mul", "m r", "y")]
    weights = [*constants(), weight("t", np.linspace(1, 2, ROWS, dtype=np.float32)), weight("w", np.ones((1, 2), "f4"))]
    proto = model(nodes, [value("x", shape=("n", 1))], [value("y", shape=("n", 2))], weights)
    rng = np.random.default_rng(0)
    fixed = halfwise.fix(proto, [{"x": rng.standard_normal((ROWS, 1)).astype(np.float32)} for _ in range(2)])
    assert fixed.met and fixed.fp32_nodes == ("n_f", "n_g", "n_c")
    assert {note.kind for each in fixed.decision.pinned for note in each.because} == {NoteKind.POSITION}


def test_bf16_counts_less_far() -> None:
    proto = model(
        [*NETWORK, node("Mul", "p k", "q"), *ROW],
        [value("x", shape=(2, 4)), value("t", shape=(ROWS, 4))],
        [value("y", shape=None)],
        [weight("w", np.ones((4, 4), np.float32)), weight("k", np.float32(300))],
    )
    pinned = {fmt: {site.name for site in Sites(load(proto), fmt).pinned} for fmt in (Format.FP16, Format.BF16)}
    assert pinned[Format.BF16] - pinned[Format.FP16] == {"n_q", "n_b"}


def test_index_slots_hold_data() -> None:
    assert all(set(slots) <= DATA.get(op, set()) for op, slots in INDEX_SLOTS.items() if op != "OneHot")
