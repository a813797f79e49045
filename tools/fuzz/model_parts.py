"""The parts of an ONNX model: graphs, nodes, attributes, tensors, types, names, wherever they are."""

from __future__ import annotations

from random import Random
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto

from halfwise.model.held_graphs import held_graphs

__all__ = ["attributes_of", "graphs_of", "infos_of", "names_of", "nodes_of", "one_of", "tensors_of"]


def graphs_of(model: onnx.ModelProto) -> list[Any]:
    """The main graph, those inside nodes, and functions: whatever holds nodes."""
    found: list[Any] = [model.graph, *model.functions]
    for holder in found:
        for node in holder.node:
            found += held_graphs(node)
    return found


def nodes_of(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for holder in graphs_of(model) for node in holder.node]


def attributes_of(model: onnx.ModelProto) -> list[AttributeProto]:
    return [attribute for node in nodes_of(model) for attribute in node.attribute]


def tensors_of(model: onnx.ModelProto) -> list[TensorProto]:
    found = [t for graph in graphs_of(model) if isinstance(graph, onnx.GraphProto) for t in graph.initializer]
    return found + [a.t for a in attributes_of(model) if a.HasField("t")]


def infos_of(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    graphs = [graph for graph in graphs_of(model) if isinstance(graph, onnx.GraphProto)]
    return [info for graph in graphs for info in (*graph.input, *graph.output, *graph.value_info)]


def names_of(model: onnx.ModelProto) -> list[str]:
    found = [name for node in nodes_of(model) for name in (*node.input, *node.output)]
    return sorted({*found, *(tensor.name for tensor in tensors_of(model)), *(info.name for info in infos_of(model))})


def one_of(random: Random, of: Any) -> Any:
    """One of several, None where there is none."""
    each = list(of)
    return random.choice(each) if each else None
