"""Finds the node at which ONNX Runtime ends the process: by what each node needs, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx

from halfwise.core.child.black_box import Fatal
from halfwise.model.held_graphs import held_graphs

__all__ = ["culprit"]

_MOST_NODES = 400  # the work grows with the square


def culprit(proto: onnx.ModelProto, attempt: Callable[[onnx.ModelProto], None]) -> str:
    """The node, in words that follow "at"; empty where it is not found. `attempt` raises Fatal, or dies of it."""
    nodes = list(proto.graph.node)
    if len(nodes) > _MOST_NODES or not any(node.name for node in nodes):  # a node by itself is named by who runs it
        return ""
    for last in range(len(nodes)):
        try:
            attempt(_up_to(proto, last))
        except Fatal:
            node = nodes[last]
            return f"{node.name!r} ({node.op_type})" if node.name else f"the {node.op_type} of {node.output[0]!r}"
        except Exception:
            continue  # it cannot be run apart
    return ""


def _up_to(proto: onnx.ModelProto, last: int) -> onnx.ModelProto:
    """The model that ends with one of its nodes."""
    cut = onnx.ModelProto()
    cut.CopyFrom(proto)
    del cut.graph.node[:], cut.graph.output[:]
    needed: set[str] = set()
    kept: list[onnx.NodeProto] = []
    for node in reversed(proto.graph.node[: last + 1]):
        if not kept or not needed.isdisjoint(node.output):
            kept.append(node)
            needed.update(_read(node))
    cut.graph.node.extend(reversed(kept))
    cut.graph.output.extend(onnx.ValueInfoProto(name=name) for name in proto.graph.node[last].output if name)
    return cut


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """What a node takes, its bodies' own names among them."""
    yield from node.input
    for body in held_graphs(node):
        yield from (value.name for value in body.output)
        for inner in body.node:
            yield from _read(inner)
