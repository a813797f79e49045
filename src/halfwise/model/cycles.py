"""The nodes of a graph that wait for their own results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import onnx_ir as ir

__all__ = ["in_cycles"]


def in_cycles(graph: ir.Graph) -> tuple[ir.Node, ...]:
    """In the file's order; nothing where the cycle goes through the body of a node."""
    nodes = list(graph)
    ahead = _left(nodes, lambda node: node.predecessors(), lambda node: node.successors())
    return tuple(_left(ahead, lambda node: node.successors(), lambda node: node.predecessors()))


Near = Callable[[ir.Node], Iterable[ir.Node]]


def _left(nodes: list[ir.Node], needed: Near, freed: Near) -> list[ir.Node]:
    """Those that never get ready, each of which is once all that it needs are."""
    among = set(nodes)
    open_ = Counter({node: len({each for each in needed(node) if each in among}) for node in nodes})
    ready = [node for node in nodes if not open_[node]]
    done = set(ready)
    while ready:
        for node in {each for each in freed(ready.pop()) if each in among}:
            open_[node] -= 1
            if not open_[node] and node not in done:
                done.add(node)
                ready.append(node)
    return [node for node in nodes if node not in done]
