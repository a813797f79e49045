"""Node names as TensorRT's ONNX parser gives them: unnamed and duplicate nodes get one, the rest keep theirs; and
names of tensors that are in no two graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["name_nodes", "separate_names"]


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


def separate_names(graph: ir.Graph) -> None:
    """Let no tensor of a branch or a loop be called like one of another, which ONNX allows: what is known of tensors
    goes by their names, and ONNX's own inference takes one for the other."""
    bodies = [body for body in graph.subgraphs() if body is not graph]
    if not bodies:
        return
    given = {value: value.name for each in (graph, *bodies) for value in _held_in(each)}
    reserved, counter = set(given.values()), 0
    taken: set[str | None] = set()
    for value, name in given.items():
        wanted = name
        while wanted in taken or (wanted != name and wanted in reserved):
            wanted, counter = f"{name}_{counter}", counter + 1
        taken.add(wanted)
        if wanted != name:
            value.name = wanted


def _held_in(graph: ir.Graph) -> list[ir.Value]:
    """Its inputs, its constants and what its nodes make, as far as they have names."""
    held = dict.fromkeys((*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)))
    return [value for value in held if value.name]
