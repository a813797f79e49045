"""Stored integers of a few bits that are cast to floats, as torchao exports weights: TensorRT reads such integers in
front of DequantizeLinear only, which with a scale of 1 is the same cast."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import onnx_ir as ir

from halfwise.model.bodies import graphs_in
from halfwise.model.families import QUANTISERS
from halfwise.model.model import Model
from halfwise.model.moving import FROM_FIRST
from halfwise.model.normal_form import normalise
from halfwise.model.opset import allow_narrow_scales, raise_opset
from halfwise.repair.graph_edit import GraphEdit

__all__ = ["with_integer_weights"]

_TYPES = {ir.DataType.INT8: 13, ir.DataType.INT4: 21}  # and the opset in which they are dequantised so
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def with_integer_weights(model: Model, types: Collection[str]) -> Model:
    """`types`: of quantised tensors that the target reads, by ONNX's name. The given model where it has none such."""
    if not any(_path(value, types) for value in model.initializers()):
        return model
    copy, found = model.ir.clone(), []
    for graph in (copy.graph, *graphs_in(copy.graph)):
        found += [(value, path) for value in graph.initializers.values() if (path := _path(value, types))]
    if not raise_opset(copy, max(_TYPES[value.dtype] for value, _ in found if value.dtype is not None)):
        return model
    for value, path in dict(found).items():
        edit = GraphEdit(copy, path[0], "as_float")
        readers = list(value.uses())
        one = GraphEdit(copy, path[0], "one").constant(1.0)  # no name of a node: TensorRT names layers after both
        wide = edit.op("DequantizeLinear", [value, one])
        wide.type, wide.shape = ir.TensorType(ir.DataType.FLOAT), value.shape
        for node, slot in readers:
            node.replace_input_with(slot, wide)
        for node in path:
            if node.op_type != "Cast":
                node.outputs[0].type = wide.type
    allow_narrow_scales(copy)
    normalise(copy)
    return replace(model, ir=copy)


def _path(value: ir.Value, types: Collection[str]) -> list[ir.Node]:
    """The nodes that move such integers, and cast them in the end; none where anything else reads one."""
    if value.dtype not in _TYPES or value.dtype.name not in types:
        return []
    found: list[ir.Node] = []
    waiting = [value]
    while waiting:
        moved = waiting.pop()
        if moved.is_graph_output():
            return []
        for node, slot in moved.uses():
            if node.domain or slot or node.op_type in QUANTISERS:
                return []
            if node.op_type == "Cast":
                if node.outputs[0].dtype not in _FLOATS:
                    return []
            elif node.op_type in FROM_FIRST and len(node.outputs) == 1:
                waiting.append(node.outputs[0])
            else:
                return []
            found.append(node)
    return found
