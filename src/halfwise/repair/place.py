"""Where a repair was found: the nodes it names, and whether they still are what they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from halfwise.repair.graph_edit import node_named

__all__ = ["found_again", "value_named", "wiring"]

_DIGITS = 16


def wiring(nodes: Iterable[ir.Node]) -> str:
    """A digest of what nodes are, read and write, so that a repair sees whether another one was there before it."""
    lines = []
    for node in nodes:
        reads = [value.name if value is not None else "" for value in node.inputs]
        writes = [value.name for value in node.outputs]
        lines.append(repr((node.name, node.domain, node.op_type, reads, writes, sorted(node.attributes))))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def found_again(model: ir.Model, names: Sequence[str], digest: str) -> list[ir.Node] | None:
    """The nodes of these names; None where one is gone or is wired in another way than when it was found."""
    nodes = [node for name in names if (node := node_named(model, name)) is not None]
    return nodes if len(nodes) == len(names) and wiring(nodes) == digest else None


def value_named(nodes: Iterable[ir.Node], name: str | None) -> ir.Value | None:
    """The value of this name that one of the nodes reads or writes."""
    for node in nodes:
        for value in (*node.inputs, *node.outputs):
            if value is not None and name is not None and value.name == name:
                return value
    return None
