"""Node names as TensorRT's ONNX parser gives them: unnamed and duplicate nodes get one, the rest keep theirs; names
of tensors that are in no two graphs, and that ONNX Runtime's optimizer does not give to its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from halfwise.model.bodies import graphs_in

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["leave_names_to_runtime", "name_nodes", "separate_names"]

# Of shapes that its fusions write, and of casts around operators in FP16: a model that it optimised and saved has them.
# Seen with 1.32: it does not look whether they are taken, and does not load what it made.
_OF_RUNTIME = re.compile(r"gemm_(input|output)_shape(_token_\d+)?|InsertedPrecisionFreeCast_.*")


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
    bodies = graphs_in(graph)
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


def leave_names_to_runtime(graph: ir.Graph) -> None:
    """Tensors called as ONNX Runtime will call some of its own get other names, inputs and outputs aside."""
    held = _held_in(graph)
    taken = {value.name for value in held}
    for value in held:
        if not _OF_RUNTIME.fullmatch(value.name or "") or value.is_graph_input() or value.is_graph_output():
            continue
        name = f"{value.name}_given"
        while name in taken:
            name += "_given"
        taken.add(name)
        value.name = name


def _held_in(graph: ir.Graph) -> list[ir.Value]:
    """Its inputs, its constants and what its nodes make, as far as they have names."""
    held = dict.fromkeys((*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)))
    return [value for value in held if value.name]
