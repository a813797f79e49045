"""Inputs that nothing reads while a flag has one value: the cache of a merged decoder, in its first step."""

from __future__ import annotations

import onnx_ir as ir

from halfwise.model.bodies import graphs_in

__all__ = ["unread_inputs"]


def unread_inputs(graph: ir.Graph) -> dict[ir.Value, tuple[str, bool]]:
    """By input, the name of the flag, which is an input that Ifs take as their condition, and that value."""
    flags: dict[object, tuple[str, bool]] = {}  # by graph, that it is in the branch of this value
    for node in graph:
        condition = node.inputs[0] if node.op_type == "If" and not node.domain else None
        if condition is None or not condition.is_graph_input():
            continue
        for name, value in (("then_branch", True), ("else_branch", False)):
            branch = node.attributes[name].as_graph()
            flags.update(dict.fromkeys((branch, *graphs_in(branch)), (condition.name or "", value)))
    found = {}
    for given in graph.inputs:
        read = {flags.get(reader.graph) for reader, _ in given.uses()}
        flag = read.pop() if len(read) == 1 and not given.is_graph_output() else None
        if flag is not None:
            found[given] = (flag[0], not flag[1])
    return found
