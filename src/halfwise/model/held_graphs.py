"""The graphs that nodes of a protobuf hold: branches, and bodies of loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

__all__ = ["held_graphs", "nodes_within"]


def held_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Those of the node itself."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes_within(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Each of the nodes, and all in the graphs that it holds."""
    for node in nodes:
        yield node
        for graph in held_graphs(node):
            yield from nodes_within(graph.node)
