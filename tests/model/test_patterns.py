"""Patterns of logarithms, sums, coordinates and selections in every spelling; all patterns over whole networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto

from halfwise.model.model import load
from halfwise.model.patterns import KINDS, find_patterns
from tests.models.pattern_graph import WIDTH, Graph, kinds
from tests.models.zoo import SHAPES, detr_head, encoder, norm_log_head
from tests.support.paths import REAL_MODELS

SHARED = REAL_MODELS


# -- logarithms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Add", "Max", "Clip"])
def test_guarded_logarithm(op: str) -> None:
    graph = Graph()
    guard = graph.op(op, [graph.input("x", [4]), graph.number(1e-10)], "")
    graph.output(graph.op("Log", [guard], ""), "y", [4])
    (found,) = graph.found()
    assert (found.kind, found.anchor, found.details["input"]) == ("log-epsilon", f"/{op}", "x")
    assert found.details["epsilon"] == pytest.approx(1e-10)


def test_log1p_is_no_guard() -> None:
    graph = Graph()
    x = graph.input("x", [4])
    graph.output(graph.op("Log", [graph.op("Add", [x, graph.number(1.0)], "")], ""), "y", [4])
    graph.output(graph.op("Log", [graph.op("Add", [x, x], "")], ""), "z", [4])
    assert graph.found() == []


def test_inverse_sigmoid_as_detr_writes_it() -> None:
    graph = Graph()
    inside = graph.op("Clip", [graph.input("x", [4]), graph.number(0.0), graph.number(1.0)], "")
    low = graph.op("Clip", [inside, graph.number(1e-5)], "")
    rest = graph.op("Clip", [graph.op("Sub", [graph.number(1.0), inside], ""), graph.number(1e-5)], "")
    graph.output(graph.op("Log", [graph.op("Div", [low, rest], "")], ""), "y", [4])
    (found,) = graph.found()
    assert (found.kind, found.details["input"], found.anchor) == ("inverse-sigmoid", "x", "/Sub")
    assert found.details["low"] == found.details["low_rest"] == pytest.approx(1e-5)
    assert found.details["high"] == 1.0
    assert set(found.nodes) == graph.names()


def test_inverse_sigmoid_as_a_difference_of_logarithms() -> None:
    graph = Graph()
    x = graph.input("x", [4])
    rest = graph.op("Sub", [graph.number(1.0), x], "")
    y = graph.op("Sub", [graph.op("Log", [x], ""), graph.op("Log", [rest], "")], "")
    graph.output(y, "y", [4])
    (found,) = graph.found()
    assert (found.kind, found.details["low"], found.details["high"]) == ("inverse-sigmoid", None, None)


@pytest.mark.parametrize(("one", "of"), [(2.0, "x"), (1.0, "other")])
def test_what_is_no_inverse_sigmoid_is_left_alone(one: float, of: str) -> None:
    graph = Graph()
    x, _ = graph.input("x", [4]), graph.input("other", [4])
    ratio = graph.op("Div", [x, graph.op("Sub", [graph.number(one), of], "")], "")
    graph.output(graph.op("Log", [ratio], ""), "y", [4])
    assert graph.found() == []


# -- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "shape", "count", "sums"),
    [
        ("ReduceSum", [1, 2, 64, 64], 4096, True),
        ("ReduceSumSquare", [1, 2, 512, 512], 262144, True),
        ("ReduceMean", [1, 2, 64, 64], 4096, False),
        ("GlobalAveragePool", [1, 2, 64, 64], 4096, False),
        ("ReduceSum", [1, 2, 64, 63], None, True),
        ("ReduceSum", [1, 2, "height", "width"], None, True),
        ("ReduceSum", [1, 2, 1 << 62, 1 << 62], None, True),
    ],
)
def test_large_reductions(op: str, shape: list[int | str], count: int | None, sums: bool) -> None:
    graph = Graph()
    x = graph.input("x", shape)
    y = graph.op(op, [x], "") if op == "GlobalAveragePool" else graph.reduce(op, x, [2, 3])
    graph.output(y, "y", [1, 2, 1, 1])
    found = graph.found()
    assert [(p.kind, p.details["count"], p.details["sums"]) for p in found] == (
        [] if count is None else [("large-reduction", count, sums)]
    )


def test_gram_matrix_and_its_near_misses() -> None:
    graph = Graph()
    x, other = graph.input("x", [2, 6, 50]), graph.input("other", [2, 6, 50])
    turned = graph.op("Transpose", [x], "", perm=[0, 2, 1])
    graph.output(graph.op("MatMul", [x, turned], "/gram"), "y", [2, 6, 6])
    graph.output(graph.op("MatMul", [other, turned], "/other"), "z", [2, 6, 6])
    square = graph.input("square", [5, 5, 5])
    cycled = graph.op("Transpose", [square], "", perm=[2, 0, 1])
    graph.output(graph.op("MatMul", [square, cycled], "/cycled"), "w", [5, 5, 5])
    (found,) = graph.found()
    assert (found.kind, found.anchor, found.details["count"]) == ("gram", "/gram/MatMul", 50)


def test_running_sums_of_floats_only() -> None:
    graph = Graph()
    axis = graph.number(1, np.int64)
    graph.output(graph.op("CumSum", [graph.input("x", [1, 300]), axis], "/float"), "y", [1, 300])
    graph.output(
        graph.op("CumSum", [graph.input("ids", [1, 300], TensorProto.INT64), axis], "/int"),
        "z",
        [1, 300],
        TensorProto.INT64,
    )
    (found,) = graph.found()
    assert (found.kind, found.anchor, found.details["count"]) == ("cumsum", "/float/CumSum", 300)


# -- coordinates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "values", "largest"),
    [
        ("Sub", np.arange(3000), 3000 - 1),
        ("Add", np.arange(3000) + 0.5, 2999.5),
        ("Mul", [4000.0] * 4, 4000),
        ("Mul", 4096.0, 4096),
        ("Mul", 65504.0, 65504),  # the largest of all: none lies above it
        ("Sub", np.arange(2000), None),  # FP16 holds them all
        ("Add", [2920.51, 3.0], None),  # a bias
        ("Div", [4000.0], None),  # makes large numbers small
        ("Mul", [1e9], None),  # no coordinate any more
        ("Add", [-1e4, 0.0], None),  # a mask
    ],
)
def test_large_coordinates(op: str, values: Any, largest: float | None) -> None:
    graph = Graph()
    size = np.size(values)
    graph.output(graph.op(op, [graph.input("x", [2, size]), graph.weight("grid", values)], ""), "y", [2, size])
    found = graph.found()
    step = {4096: 4.0, 65504: 32.0}.get(largest or 0, 2.0)
    assert [(p.kind, p.details["largest"], p.details["step"]) for p in found] == (
        [] if largest is None else [("large-coordinates", largest, step)]
    )


@pytest.mark.parametrize(("limit", "hit"), [(4000, True), (1000, False)])
def test_a_range_of_constants_is_a_grid(limit: int, hit: bool) -> None:
    graph = Graph()
    bounds = [graph.number(value, np.int64) for value in (0, limit, 1)]
    grid = graph.op("Cast", [graph.op("Range", bounds, "")], "", to=TensorProto.FLOAT)
    graph.output(graph.op("Sub", [graph.input("x", [2, 1]), grid], ""), "y", [2, limit])
    assert kinds(graph.found("large-coordinates")) == (["large-coordinates"] if hit else [])


@pytest.mark.parametrize("same", [True, False])
def test_a_remainder_by_hand(same: bool) -> None:
    graph = Graph()
    x, other, step = graph.input("x", [4]), graph.input("other", [4]), graph.number(16.0)
    cell = graph.op("Floor", [graph.op("Div", [x if same else other, step], "")], "")
    graph.output(graph.op("Sub", [x, graph.op("Mul", [cell, step], "")], ""), "y", [4])
    found = graph.found()
    assert [(p.kind, p.anchor, p.details["remainder"]) for p in found] == (
        [("large-coordinates", "/Sub", True)] if same else []
    )


def test_sine_embedding_of_pixels() -> None:
    graph = Graph()
    pixels = graph.op("Mul", [graph.input("boxes", [5, 1]), graph.number(4000.0)], "")
    turned = graph.op("Mul", [pixels, graph.number(2.0)], "")
    phase = graph.op("Div", [turned, graph.weight("dim_t", [1.0, 10.0, 100.0, 1000.0])], "")
    starts = [[graph.number([at], np.int64) for at in (first, 4)] for first in (0, 1)]
    every = [graph.number([1], np.int64), graph.number([2], np.int64)]
    halves = [graph.op("Slice", [phase, *bounds, *every], "") for bounds in starts]
    waves = [graph.op(op, [half], "") for op, half in zip(("Sin", "Cos"), halves, strict=True)]
    graph.output(graph.op("Concat", waves, "", axis=-1), "y", [5, 4])
    (found,) = graph.found("sincos-embedding")
    assert set(found.nodes) == {"/Mul_1", "/Div", "/Sin", "/Cos"}
    assert (found.details["factor"], found.details["largest"]) == (2.0, 4000.0)


@pytest.mark.parametrize("miss", ["one wave", "two phases", "no frequency", "constant"])
def test_what_is_no_sine_embedding_is_left_alone(miss: str) -> None:
    graph = Graph()
    x, rates = graph.input("x", [4, 1]), graph.weight("rates", [1.0, 2.0, 3.0])
    one = graph.op("Mul", [x, rates], "") if miss not in ("no frequency", "constant") else x
    if miss == "constant":
        one = graph.op("Mul", [graph.number(np.ones([4, 1])), rates], "")
    two = graph.op("Mul", [graph.input("other", [4, 1]), rates], "") if miss == "two phases" else one
    y = graph.op("Sin", [one], "")
    if miss != "one wave":
        y = graph.op("Add", [y, graph.op("Cos", [two], "")], "")
    graph.output(graph.op("Add", [y, x], ""), "y", [4, "columns"])
    assert graph.found() == []


# -- selections and ids -----------------------------------------------------------------------------------------------


def test_selections_of_computed_floats_only() -> None:
    graph = Graph()
    scores = graph.op("Sigmoid", [graph.input("x", [4, WIDTH])], "")
    ids = graph.input("ids", [4, WIDTH], TensorProto.INT64)
    table = graph.weight("table", np.ones([4, WIDTH]))
    for name, source in (("float", scores), ("int", ids), ("constant", table)):
        graph.output(graph.op("ArgMax", [source], f"/{name}"), name, [1, WIDTH], TensorProto.INT64)
    (found,) = graph.found()
    assert (found.kind, found.anchor, found.details["op"]) == ("selection", "/float/ArgMax", "ArgMax")


def test_ids_given_as_floats() -> None:
    graph = Graph()
    ids = graph.op("Cast", [graph.input("ids", [4])], "", to=TensorProto.INT64)
    row = graph.op("Gather", [graph.weight("table", np.ones([5000, 3])), ids], "")
    graph.output(row, "y", [4, 3])
    (found,) = graph.found()
    assert (found.kind, found.anchor) == ("id-cast", "/Cast")
    assert (found.details["direction"], found.details["table"]) == ("to-index", 5000)


def test_integers_from_outside_calculated_with_as_floats() -> None:
    graph = Graph()
    steps = graph.op("Cast", [graph.input("steps", [4], TensorProto.INT64)], "", to=TensorProto.FLOAT)
    graph.output(graph.op("Mul", [steps, graph.number(0.1)], ""), "y", [4])
    (found,) = graph.found()
    assert (found.kind, found.details["direction"]) == ("id-cast", "from-id")


def test_masks_and_shapes_are_no_ids() -> None:
    graph = Graph()
    x = graph.input("x", [4, WIDTH])
    mask = graph.op("Cast", [graph.input("mask", [4, 1], TensorProto.BOOL)], "", to=TensorProto.FLOAT)
    sizes = graph.op("Cast", [graph.op("Shape", [x], "")], "", to=TensorProto.FLOAT)
    total = graph.reduce("ReduceSum", sizes, [0])
    graph.output(graph.op("Add", [graph.op("Mul", [x, mask], ""), total], ""), "y", [4, WIDTH])
    rounded = graph.op("Cast", [x], "", to=TensorProto.INT64)
    graph.output(rounded, "z", [4, WIDTH], TensorProto.INT64)
    assert graph.found() == []


# -- all of them ------------------------------------------------------------------------------------------------------

EXPECTED = {
    "layer_norm_overflow": ["layernorm"],
    "rms_norm_overflow": ["rmsnorm"],
    "instance_norm_overflow": ["instancenorm"],
    "group_norm_overflow": ["groupnorm"],
    "l2_norm_of_padding": ["l2norm"],
    "l2_norm_of_small_vectors": ["l2norm"],
    "variance_by_moments": ["layernorm", "variance-by-moments"],
    "mask_minus_1e9": ["attention"],
    "two_masks_added": ["attention"],
    "sum_over_512x512": ["large-reduction"],
    "gram_matrix": ["gram"],
    "cumulative_sum": ["cumsum"],
    "log_sum_exp_by_hand": ["logsumexp"],
    "softmax_by_hand": ["softmax"],
    "log_of_probability": ["log-epsilon"],
    "top_k_selection": ["selection"],
    "inverse_sigmoid": ["inverse-sigmoid"],
    "large_coordinates": ["large-coordinates"],
    "large_phase": ["sincos-embedding"],
    "subnormal_weights": [],
    "healthy_mlp": [],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_shapes_of_the_zoo(name: str) -> None:
    model = load(SHAPES[name]().model)
    before = ir.to_proto(model.ir).SerializeToString(deterministic=True)
    assert [pattern.kind for pattern in find_patterns(model)] == EXPECTED[name]
    assert ir.to_proto(model.ir).SerializeToString(deterministic=True) == before, "looking changes nothing"


@pytest.mark.parametrize(
    ("build", "counts"),
    [
        (encoder, {"layernorm": 13, "attention": 6}),
        (detr_head, {"attention": 4, "inverse-sigmoid": 2, "sincos-embedding": 2, "large-coordinates": 2}),
        (norm_log_head, {"large-reduction": 1, "l2norm": 1, "gram": 1, "logsumexp": 1, "log-epsilon": 1}),
    ],
)
def test_networks_of_the_zoo(build: Callable[[], Any], counts: dict[str, int]) -> None:
    model = load(build().model)
    patterns = find_patterns(model)
    found = [pattern.kind for pattern in patterns]
    assert {kind: found.count(kind) for kind in found} == counts
    place = {node.name: index for index, node in enumerate(model.nodes)}
    assert [place[p.anchor] for p in patterns] == sorted(place[p.anchor] for p in patterns)
    for pattern in patterns:
        assert pattern.kind in KINDS
        assert pattern.anchor in pattern.nodes
        assert [place[name] for name in pattern.nodes] == sorted(place[name] for name in pattern.nodes)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("gtcrn_stream", {"layernorm": 4}),
        ("lighterglue_L3", {"attention": 12, "sincos-embedding": 2, "selection": 2}),
        ("magika_v1", {"layernorm": 2, "id-cast": 1}),
        ("yolox_nano", {}),
    ],
)
def test_real_models(name: str, counts: dict[str, int]) -> None:
    path = SHARED / name / "model.onnx"
    if not path.exists():
        pytest.skip("the shared models are not beside the project")
    found = [pattern.kind for pattern in find_patterns(load(path))]
    assert {kind: found.count(kind) for kind in found} == counts


def test_a_graph_of_one_node_has_no_pattern() -> None:
    graph = Graph()
    graph.output(graph.op("Relu", [graph.input("x", [4])], ""), "y", [4])
    assert graph.found() == []
