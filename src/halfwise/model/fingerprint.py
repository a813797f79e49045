"""The fingerprint of a graph: the same for the same nodes, wiring, attributes and shapes, whatever the weights hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from halfwise.model.model import Model

__all__ = ["graph_sha256"]

# Axes, shapes and the like say what a graph computes; larger whole numbers are tables, which training may fill.
_LARGEST_OF_THE_GRAPH = 1024


def graph_sha256(model: Model) -> str:
    """Of the model in normal form. Names of tensors inside it do not count, names of nodes, inputs and outputs do."""
    digest = hashlib.sha256()
    for part in _parts(model):
        digest.update(json.dumps(part, ensure_ascii=True, separators=(",", ":")).encode("ascii"))
        digest.update(b"\n")
    return digest.hexdigest()


def _parts(model: Model) -> list[Any]:
    return [sorted(model.ir.opset_imports.items()), *_graph(model.graph, {})]


def _graph(graph: ir.Graph, outer: Mapping[ir.Value, Any]) -> list[Any]:
    """`outer` tells what values of the graphs around it are; a node inside may read them."""
    known = dict(outer)
    depth = len(outer)
    for index, value in enumerate(graph.inputs):
        known[value] = ["input", depth, index]
    for value in graph.initializers.values():
        known[value] = ["weight", *_type(value), _meaning(value)]
    parts: list[Any] = [[value.name, *_type(value)] for value in graph.inputs]
    for node in graph:
        reads = [None if value is None else known.get(value) for value in node.inputs]
        attributes = [[name, _attribute(node.attributes[name], known)] for name in sorted(node.attributes)]
        parts.append([node.name, node.domain, node.op_type, reads, attributes, len(node.outputs)])
        for index, value in enumerate(node.outputs):
            known[value] = [node.name, index]
    return [*parts, *([value.name, known.get(value)] for value in graph.outputs)]


def _type(value: ir.Value) -> list[Any]:
    shape = None if value.shape is None else [str(dim) for dim in value.shape]
    return [str(value.dtype), shape]


def _meaning(value: ir.Value) -> Any:
    """What an integer constant holds; nothing of what can be trained."""
    tensor = value.const_value
    if tensor is None or tensor.dtype.is_floating_point() or tensor.size > _LARGEST_OF_THE_GRAPH:
        return None
    return str(tensor.numpy().tolist())


def _attribute(attribute: ir.Attr, known: Mapping[ir.Value, Any]) -> Any:
    value = attribute.value
    if isinstance(value, ir.Graph):
        return _graph(value, known)
    if isinstance(value, (list, tuple)) and any(isinstance(each, ir.Graph) for each in value):
        return [_graph(each, known) for each in value]
    if isinstance(value, ir.TensorProtocol):
        return [str(value.dtype), list(map(str, value.shape)), hashlib.sha256(value.tobytes()).hexdigest()]
    return repr(value)
