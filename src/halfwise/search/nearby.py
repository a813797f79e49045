"""Which nodes of a graph, or which repairs, are near a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

__all__ = ["around", "nearest"]


def around(nodes: Iterable[ir.Node], reach: int) -> set[ir.Node]:
    found = set(nodes)
    edge = set(found)
    for _ in range(reach):
        edge = {n for node in edge for n in (*node.predecessors(), *node.successors())} - found
        found |= edge
    return found


def nearest(node: ir.Node, places: Mapping[str, int]) -> int | None:
    """The repair at a node, or the one to which the way through the graph is shortest."""
    seen, edge = {node}, [node]
    while edge:
        for each in edge:
            found = places.get(each.name or "")
            if found is not None:
                return found
        reached = dict.fromkeys(n for each in edge for n in (*each.predecessors(), *each.successors()))
        edge = [n for n in reached if n not in seen]
        seen.update(edge)
    return None
