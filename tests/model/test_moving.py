"""What operators do to the values that they hand on, run on each of them; and the ways past them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from halfwise.model.model import Model, load
from halfwise.model.moving import FROM_FIRST, MOVES, Move, behind, beyond, movers, only_moves
from halfwise.model.patterns.selections import find_id_casts
from halfwise.model.patterns.view import View
from halfwise.precision.sites import Sites
from halfwise.repair.fold_constants import FoldConstants
from halfwise.repair.rule import Ranges
from halfwise.verbs.scan.roles import Role, readings
from tests.models.build import model, node, value, weight

INT64 = TensorProto.INT64
X = np.arange(1, 17, dtype=np.float32).reshape(1, 4, 2, 2)

# One use of every operator that gives values of its first input alone: what else it reads, its attributes.
CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Identity": ([], {}),
    "Reshape": ([[2, 8]], {}),
    "Squeeze": ([[0]], {}),
    "Unsqueeze": ([[0]], {}),
    "Flatten": ([], {"axis": 2}),
    "Transpose": ([], {"perm": [3, 1, 0, 2]}),
    "DepthToSpace": ([], {"blocksize": 2}),
    "SpaceToDepth": ([], {"blocksize": 2}),
    "ReverseSequence": ([[3]], {"batch_axis": 0, "time_axis": 1}),
    "Expand": ([[3, 4, 2, 2]], {}),
    "Tile": ([[1, 2, 1, 3]], {}),
    "Slice": ([[1], [3], [1]], {}),
    "Split": ([[1, 3]], {"axis": 1}),
    "Gather": ([[2, 0, 0]], {"axis": 1}),
    "GatherElements": ([[[[[1, 0], [0, 3]]]]], {"axis": 1}),
    "GatherND": ([[[0, 3], [0, 1]]], {}),
    "Compress": ([np.array([True, False, True])], {"axis": 1}),
    "Unique": ([], {}),
}


def run(op: str) -> list[np.ndarray[Any, Any]]:
    others, attributes = CASES[op]
    names = [f"i{index}" for index in range(len(others))]
    outputs = "y0 y1" if op == "Split" else "y0"
    proto = model(
        [node(op, " ".join(["x", *names]), outputs, **attributes)],
        [value("x", shape=X.shape)],
        [value(name, shape=None) for name in outputs.split()],
        [weight(name, np.asarray(each)) for name, each in zip(names, others, strict=True)],
        opset=18,
    )
    return [np.asarray(each) for each in ReferenceEvaluator(proto).run(None, {"x": X})]


@pytest.mark.parametrize("op", sorted(FROM_FIRST))
def test_values_are_those_of_the_first_input(op: str) -> None:
    results = run(op)
    assert all(np.isin(result, X).all() for result in results)
    joined = np.concatenate([result.reshape(-1) for result in results])
    if op in movers(Move.SHAPE):
        np.testing.assert_array_equal(joined, X.reshape(-1))
    if op in movers(Move.ORDER):
        np.testing.assert_array_equal(np.sort(joined), X.reshape(-1))
        assert (joined != X.reshape(-1)).any()
    if op in movers(Move.REPEAT):
        np.testing.assert_array_equal(np.unique(joined), X.reshape(-1))


def test_every_operator_is_of_one_kind_and_known_to_onnx() -> None:
    assert sum(len(movers(kind)) for kind in Move) == len(MOVES)
    assert {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain} >= MOVES


# -- walks ------------------------------------------------------------------------------------------------------------


def loaded(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    weights: Sequence[onnx.TensorProto] = (),
    shape: Sequence[int] = (4, 4),
    domains: Sequence[str] = (),
    kind: int = TensorProto.FLOAT,
) -> Model:
    proto = model(nodes, [value("x", kind, shape)], [value("y", shape=None)], weights, opset=18, domains=domains)
    onnx.save(proto, path / "m.onnx")
    return load(path / "m.onnx")


def test_a_way_back_ends_where_something_is_computed(tmp_path: Path) -> None:
    nodes = [
        node("Neg", "x", "a"), node("Transpose", "a", "b"), node("Identity", "b", "c"), node("Flatten", "c", "d"),
        node("Slice", "d zero one", "e", domain="mine"), node("Identity", "e", "y"),
    ]  # fmt: skip
    weights = [weight("zero", np.zeros(1, np.int64)), weight("one", np.ones(1, np.int64))]
    graph = loaded(tmp_path, nodes, weights, domains=["mine"])
    made = {each.outputs[0].name: each.outputs[0] for each in graph.nodes}
    walks = [behind(made["d"], FROM_FIRST), behind(made["d"], FROM_FIRST, 1), behind(made["d"])]
    assert [each.name if each else None for each in walks] == ["a", "b", "d"]
    assert behind(made["y"], FROM_FIRST) is made["e"]  # another domain's Slice may be anything
    readers = [(reader.outputs[0].name, slot) for reader, slot in beyond(made["a"], FROM_FIRST, 2)]
    assert readers == [("e", 0)]
    assert [reader.op_type for reader, _ in beyond(made["a"], FROM_FIRST, 1)] == ["Flatten"]


def test_all_parts_of_a_split_are_followed_and_no_other_second_output(tmp_path: Path) -> None:
    nodes = [
        node("Split", "x", "a b", axis=0, num_outputs=2), node("Neg", "b", "c"), node("Unique", "c", "u i"),
        node("Cast", "i", "f", to=1), node("ReduceSum", "f", "s"), node("Add", "a s", "y"),
    ]  # fmt: skip
    graph = loaded(tmp_path, nodes)
    x = graph.graph.inputs[0]
    assert sorted(reader.op_type for reader, _ in beyond(x, FROM_FIRST, 2)) == ["Add", "Neg"]
    cast = next(each for each in graph.nodes if each.op_type == "Cast")
    assert behind(cast.inputs[0], FROM_FIRST) is cast.inputs[0]  # indices are not the values


def test_a_scatter_that_adds_computes_and_so_may_another_domain(tmp_path: Path) -> None:
    nodes = [
        node("ScatterElements", "x at new", "a"),
        node("ScatterElements", "a at new", "b", reduction="add"),
        node("Slice", "b", "y", domain="mine"),
    ]
    weights = [weight("at", np.zeros((1, 4), np.int64)), weight("new", np.ones((1, 4), np.float32))]
    graph = loaded(tmp_path, nodes, weights, domains=["mine"])
    assert [only_moves(each) for each in graph.nodes] == [True, False, False]


# -- where private lists fell short -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "between",
    [
        [node("Flatten", "i", "j")],
        [node("Tile", "i twice", "j")],
        [node("Split", "i", "k j", axis=0, num_outputs=2)],
        [node("Gather", "i first", "j")],
    ],
)
def test_an_index_is_one_behind_whatever_moves_it(tmp_path: Path, between: list[onnx.NodeProto]) -> None:
    nodes = [node("Cast", "x", "i", to=INT64), *between, node("Gather", "table j", "y")]
    weights = [
        weight("table", np.ones((9000, 4), np.float32)), weight("twice", np.array([2, 1])),
        weight("first", np.array([0])),
    ]  # fmt: skip
    (pattern,) = find_id_casts(View(loaded(tmp_path, nodes, weights)))
    assert (pattern.details["direction"], pattern.details["table"]) == ("to-index", 9000)


def test_each_part_of_a_weight_that_is_split_is_a_matrix(tmp_path: Path) -> None:
    nodes = [
        node("Split", "w", "q k", axis=1, num_outputs=2), node("MatMul", "x q", "a"), node("MatMul", "x k", "b"),
        node("Add", "a b", "y"),
    ]  # fmt: skip
    graph = loaded(tmp_path, nodes, [weight("w", np.ones((4, 8), np.float32))])
    found = readings(View(graph), Sites(graph), graph.graph.initializers["w"])
    assert [(each.role, each.node.op_type) for each in found] == [(Role.MATRIX, "MatMul")] * 2


def test_a_constant_that_is_scattered_and_added_is_computed_once(tmp_path: Path) -> None:
    nodes = [node("ScatterElements", "w at w1", "c", reduction="add"), node("Mul", "x c", "y")]
    weights = [
        weight("w", np.ones((4, 4), np.float32)), weight("at", np.zeros((1, 4), np.int64)),
        weight("w1", np.full((1, 4), 0.1, np.float32)),
    ]  # fmt: skip
    (repair,) = FoldConstants().find(loaded(tmp_path, nodes, weights), Ranges({}, {}))
    assert repair.parameters == {"kind": "fold", "value": "c"}
