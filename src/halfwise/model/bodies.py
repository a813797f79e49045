"""The graphs that nodes hold, branches and bodies of loops, and the nodes in them: asked for so often that onnx_ir's
own walk takes a tenth of the time of all that is decided about a model."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

__all__ = ["bodies_of", "graphs_in", "nodes_in"]


def bodies_of(node: ir.Node) -> Iterator[ir.Graph]:
    """Those that a node holds itself."""
    for attribute in node.attributes.data.values():
        if attribute.is_ref():
            continue
        if attribute.type is ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type is ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def nodes_in(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """Every node, those in bodies right behind the node that holds them."""
    for node in graph:
        yield node
        if node.attributes.data:
            for body in bodies_of(node):
                yield from nodes_in(body)


def graphs_in(graph: ir.Graph | ir.Function) -> list[ir.Graph]:
    """Every graph within, at any depth, without itself."""
    found: dict[ir.Graph, None] = {}
    for node in graph:
        if node.attributes.data:
            for body in bodies_of(node):
                found[body] = None
                found.update(dict.fromkeys(graphs_in(body)))
    return list(found)
