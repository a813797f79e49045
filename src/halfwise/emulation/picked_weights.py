"""Large tables that a model only picks rows of: the rows are rounded, not a copy of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.emulation.given_weights import declared_weight
from halfwise.emulation.profiles.steps import cast
from halfwise.emulation.segments import reads_of
from halfwise.emulation.weights import RoundedWeights
from halfwise.model.weights import stored_tensor
from halfwise.precision.rewrite import Weight

__all__ = ["with_picked"]

LARGE_BYTES = 1 << 24  # of a table in FP32
_FLOAT, _HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def with_picked(
    proto: onnx.ModelProto, weights: Sequence[Weight], rounded: RoundedWeights
) -> tuple[onnx.ModelProto, list[Weight]]:
    """The model with such tables as they are stored, and all weights that it takes."""
    large = [each for each in weights if 4 * each.tensor.size >= LARGE_BYTES and _casts(each, rounded)]
    only = _only_picked(proto.graph, {each.name for each in large}) if large else set()
    tables = {each.name: each for each in large if each.name in only}
    if not tables:
        return proto, list(weights)
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    nodes = [each for node in made.graph.node for each in _rounding(node, tables, rounded)]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    for tensor in made.graph.initializer:
        if tensor.name in tables:
            stored = stored_tensor(tables[tensor.name].tensor)
            tensor.CopyFrom(declared_weight(tensor.name, stored.dtype.value, stored.shape.numpy()))
    return made, [Weight(each.name, each.tensor, None) if each.name in tables else each for each in weights]


def _casts(weight: Weight, rounded: RoundedWeights) -> tuple[int, ...]:
    """What brings picked rows into the format; nothing where the table is taken as it is, or where values are
    clamped."""
    stored = stored_tensor(weight.tensor)
    if stored.dtype is ir.DataType.FLOAT16 and weight.fmt in (Format.FP16, Format.FP32):
        return (_FLOAT,)
    if stored.dtype is ir.DataType.FLOAT and weight.fmt is Format.FP16 and rounded.largest(stored) <= weight.fmt.max:
        return (_HALF, _FLOAT)
    return ()


def _only_picked(graph: onnx.GraphProto, names: set[str]) -> set[str]:
    """Those of these weights that are the table of each node that reads them."""
    found = names - {value.name for value in graph.output}
    for node in graph.node:
        reads = reads_of(node)
        if node.op_type == "Gather" and not node.domain and node.input[0] != node.input[1]:
            reads.pop(node.input[0])
        found.difference_update(reads)
    return found


def _rounding(node: onnx.NodeProto, tables: dict[str, Weight], rounded: RoundedWeights) -> Iterator[onnx.NodeProto]:
    table = tables.get(node.input[0]) if node.input else None
    if table is None:
        yield node
        return
    steps = _casts(table, rounded)
    result, places = node.output[0], [f"{node.output[0]}__picked{number}" for number in range(len(steps))]
    node.output[0] = places[0]
    yield node
    for source, target, kind in zip(places, [*places[1:], result], steps, strict=True):
        yield cast(source, target, kind)
