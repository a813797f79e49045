"""Node names as TensorRT's ONNX parser gives them: unnamed and duplicate nodes get one, the rest keep theirs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["name_nodes"]


def name_nodes(nodes: Iterable[ir.Node]) -> int:
    """Give every node a unique name in place; returns how many names were made or changed.

    The parser calls an unnamed node `node_of_<first output>` and makes a name unique by appending a counter
    that is global to the parse.
    """
    taken: set[str] = set()
    counter = 0
    changed = 0
    for node in nodes:
        wanted = node.name or "node_of_" + next((out.name for out in node.outputs if out.name), node.op_type)
        name = wanted
        while name in taken:
            name = f"{wanted}_{counter}"
            counter += 1
        taken.add(name)
        if node.name != name:
            node.name = name
            changed += 1
    return changed
