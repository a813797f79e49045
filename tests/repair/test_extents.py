"""How long tensors are along their axes, beyond what shape inference tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto

from halfwise.model.model import load
from halfwise.model.patterns.view import View
from halfwise.repair.extents import Extents, Size
from halfwise.repair.rule import Ranges
from halfwise.repair.scale_ends import flow_of
from tests.models.build import Shape, model, node, value, weight

_B, _S = Size(1, ("b",)), Size(1, ("s",))


def _extents(
    nodes: Sequence[onnx.NodeProto],
    *,
    outputs: Sequence[tuple[str, Shape | None]] = (("y", None),),
    **constants: object,
) -> dict[str, list[Size | None] | None]:
    """Of all tensors of a graph over x of (b, s, 6)."""
    weights = [weight(name, np.asarray(array)) for name, array in constants.items()]
    ends = [value(name, TensorProto.FLOAT, shape) for name, shape in outputs]
    loaded = load(model(nodes, [value("x", shape=("b", "s", 6))], ends, weights))
    extents = Extents(View(loaded))
    found = {each.name or "": extents.of(each) for made in loaded.graph for each in made.outputs}
    return {name: None if sizes is None else list(sizes) for name, sizes in found.items()}


def _split() -> list[onnx.NodeProto]:
    """Into the batch, the sequence, and what the constant `last` tells."""
    return [
        node("Shape", "x", "shape"),
        node("Slice", "shape zero two", "open"),
        node("Concat", "open last", "asked", axis=0),
        node("Reshape", "x asked", "apart"),
    ]


def test_what_a_reshape_infers_is_the_rest() -> None:
    found = _extents([*_split(), node("Relu", "apart", "y")], zero=[0], two=[2], last=[-1, 2])
    assert found["apart"] == [_B, _S, Size(3), Size(2)]


def test_what_is_merged_is_a_product() -> None:
    turned = node("Transpose", "apart", "turned", perm=[0, 2, 1, 3])
    merged = [node("Reshape", "turned flat", "merged"), node("Relu", "merged", "y")]
    found = _extents([*_split(), turned, *merged], zero=[0], two=[2], last=[3, 2], flat=[-1, 0, 2])
    assert found["merged"] is not None and found["merged"][2] == Size(2)
    flat = _extents([node("Reshape", "x rows", "flat"), node("Relu", "flat", "y")], rows=[-1, 6])
    assert flat["flat"] == [Size(1, ("b", "s")), Size(6)]


def test_a_matrix_tells_how_wide_what_it_reads_is() -> None:
    nodes = [*_split(), node("Gather", "apart order", "picked", axis=2), node("MatMul", "picked w", "y")]
    found = _extents(nodes, zero=[0], two=[2], last=[-1], order=[1, 2], w=np.ones((2, 3), np.float32))
    assert found["picked"] is not None and found["picked"][-1] == Size(2)


def test_what_exporters_expand_to() -> None:
    """Sizes of the tensor itself and a number, where -1 stands for what is there."""
    nodes = [
        node("Unsqueeze", "x one", "wide"),
        node("Shape", "x", "shape"),
        node("Slice", "shape zero one", "batch"),
        node("Slice", "shape one three", "others"),
        node("Concat", "batch times others", "asked", axis=0),
        node("Shape", "asked", "count"),
        node("ConstantOfShape", "count", "ones", value=weight("", np.ones(1, np.int64))),
        node("Mul", "ones minus", "absent"),
        node("Equal", "asked absent", "given"),
        node("Where", "given ones asked", "sizes"),
        node("Expand", "wide sizes", "expanded"),
        node("Relu", "expanded", "y"),
    ]
    found = _extents(nodes, zero=[0], one=[1], three=[3], times=[4], minus=np.array(-1))
    assert found["expanded"] == [_B, Size(4), _S, Size(6)]


def test_parts_and_joined_parts() -> None:
    nodes = [
        *_split(),
        node("Slice", "apart zero four last_axis", "part"),
        node("Concat", "part apart", "joined", axis=-1),
        node("Relu", "joined", "y"),
    ]
    found = _extents(nodes, zero=[0], two=[2], last=[6], four=[4], last_axis=[-1])
    assert found["part"] == [_B, _S, Size(4)] and found["joined"] == [_B, _S, Size(10)]


def test_an_output_called_as_an_input_may_have_another_size() -> None:
    nodes = [node("Tile", "x twice", "tiled"), node("Add", "tiled tiled", "y")]
    found = _extents([*nodes, node("Relu", "x", "kept"), node("Neg", "kept", "z")],
                     outputs=(("y", ("b", "s", 6)), ("z", None)), twice=[1, 2, 1])  # fmt: skip
    assert found["kept"] == [_B, _S, Size(6)] and found["y"] is not None and found["y"][1] != _S


def test_they_are_worked_out_once_for_one_model() -> None:
    """One walk is made for each choice of ends, by each rule: on 1,900 small nodes this was a sixth of the time."""
    nodes = [node("MatMul", "x w", "h"), node("Exp", "h", "y")]
    proto = model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], [weight("w", np.eye(8, dtype="f4"))])
    loaded, ranges = load(proto), Ranges(high={"x": 1.0, "h": 1e6, "y": 1.0})
    flows = [flow_of(loaded, ranges), flow_of(loaded, ranges, rounds=True)]
    assert len({id(each.extents) for each in flows}) == 1
    assert flow_of(load(proto), ranges).extents is not flows[0].extents
