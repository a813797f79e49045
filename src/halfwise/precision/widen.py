"""Puts nodes of a typed model into FP32: a cast before each narrow tensor they read, one behind each they write."""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Names
from halfwise.precision.sites import Sites, native_format
from halfwise.precision.typed_onnx import typed_proto

__all__ = ["is_typed", "widened"]


def is_typed(model: Model) -> bool:
    """Whether some node of the model computes in a narrow format already."""
    return any(_narrow(value) for node in model.nodes if node.op_type != "Cast" for value in node.outputs)


def widened(model: Model, names: Collection[str]) -> onnx.ModelProto:
    """The model with these nodes of its main graph in FP32, but for casts; between two of them nothing narrows."""
    proto = typed_proto(Assignment(Sites(model), {}))
    wide_nodes = {name for name in names if name in model.node_by_name and model.node_by_name[name].op_type != "Cast"}
    types = {v.name: v.dtype for n in model.nodes for v in (*n.inputs, *n.outputs) if v is not None and _narrow(v)}
    fresh = Names.of(model)
    wide: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []

    def cast(source: str, target: str, to: int) -> onnx.NodeProto:
        return onnx.helper.make_node("Cast", [source], [target], fresh.node(f"{target}_cast"), to=to)

    for node in proto.graph.node:
        if node.name not in wide_nodes:
            nodes.append(node)
            continue
        for slot, name in enumerate(node.input):
            if name not in types:
                continue
            if name not in wide:
                wide[name] = fresh.value(f"{name}_wide")
                nodes.append(cast(name, wide[name], onnx.TensorProto.FLOAT))
            node.input[slot] = wide[name]
        nodes.append(node)
        for slot, name in enumerate(node.output):
            kind = types.get(name)
            if kind is not None:
                wide[name] = node.output[slot] = fresh.value(f"{name}_wide")
                nodes.append(cast(wide[name], name, int(kind)))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return proto


def _narrow(value: ir.Value) -> bool:
    fmt = native_format(value)
    return fmt is not None and fmt.narrow
