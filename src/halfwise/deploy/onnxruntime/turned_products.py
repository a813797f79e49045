"""Moves a Transpose behind the product that reads it, where ONNX Runtime's CPU provider would crash on the two.

(x turned) W = (x W) turned, row by row and bit by bit, where the turn leaves the last axis in place and W is a matrix:
an LSTM, a Transpose and a Linear, as PyTorch exports them. Names and formats of the two nodes stay as they are. Where
others read the Transpose, too, as queries, keys and values do, each product has one of its own behind it.
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.onnxruntime.adjustable import Adjustable, Formats
from halfwise.deploy.onnxruntime.transposed_products import cannot_fuse, cpu_crash_pairs
from halfwise.model.bodies import graphs_in, nodes_in
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Sites

__all__ = ["adjust_for_cpu", "products_first"]

_TURNING = ("transA", "transBatchA", "transBatchB")  # attributes of ONNX Runtime's own product


def products_first(assignment: Assignment) -> Assignment:
    """The same decision about the model with these pairs in the other order; itself where there are none."""
    names = [
        (transpose.name, product.name)
        for transpose, product in cpu_crash_pairs(assignment)
        if _may_swap(transpose, product)
    ]
    if not names:
        return assignment
    sites = assignment.sites
    copy = sites.model.ir.clone()
    nodes = {node.name: node for node in copy.graph}
    for transpose, product in names:
        _swap(nodes[transpose], nodes[product])
    swapped = Sites(replace(sites.model, ir=copy), sites.fmt, sites.choices)
    by_name = swapped.model.node_by_name
    formats = {by_name[node.name or ""]: fmt for node, fmt in assignment.formats.items()}
    return Assignment(swapped, formats, assignment.io)


def adjust_for_cpu(may: Adjustable, start: Adjustment) -> Adjustment:
    """Pairs that no other order spares: both nodes in FP32, where the user lets it."""
    formats: Formats = start.decision.formats
    added: list[PlannedNode] = []
    for transpose, product in cpu_crash_pairs(products_first(may.assignment(formats))):
        pair = [may.sites.model.node_by_name[node.name or ""] for node in (transpose, product)]
        changed = may.widened(pair, formats)
        if changed is not None:
            reasons = (
                Note.of(NoteKind.KEEPS_TRANSPOSE_LOADABLE, product.name),
                Note.of(NoteKind.KEEPS_RUNNABLE, product.op_type),
            )
            added += [
                PlannedNode(node.name or "", node.op_type, Format.FP32, Reason.COMPILER, (because,))
                for node, because in zip(pair, reasons, strict=True)
                if node not in formats
            ]
            formats = changed
    return start.to(start.decision.with_formats(formats), added) if added else start


def _may_swap(transpose: ir.Node, product: ir.Node) -> bool:
    turned, matrix = product.inputs[0], product.inputs[1]
    order = tuple(transpose.attributes["perm"].as_ints())
    return (
        turned is transpose.outputs[0]
        and order[-1] == len(order) - 1
        and matrix is not None
        and matrix.shape is not None
        and len(matrix.shape) == 2
        and not any(product.attributes.get_int(name, 0) for name in _TURNING)
        and (_is_read_once(turned) or not any(cannot_fuse(*use) for use in product.outputs[0].uses()))
    )


def _is_read_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output()


def _swap(transpose: ir.Node, product: ir.Node) -> None:
    """The two keep their names; the product's result is handed out under the name that it had."""
    result, graph, source = product.outputs[0], product.graph, transpose.inputs[0]
    assert graph is not None
    if _is_read_once(transpose.outputs[0]):
        graph.remove(transpose)
    else:
        transpose = _like(transpose, _free_name(graph, f"{product.name}_turned"))
    between = transpose.outputs[0]
    product.replace_input_with(0, source)
    ir.convenience.replace_all_uses_with(result, between, replace_graph_outputs=True)
    transpose.replace_input_with(0, result)
    between.name, result.name = result.name, between.name
    between.type, between.shape, result.shape = result.type, result.shape, None
    graph.insert_after(product, transpose)


def _free_name(graph: ir.Graph, name: str) -> str:
    """Neither a node's nor a tensor's, in any graph within."""
    graphs = (graph, *graphs_in(graph))
    given = (value.name for each in graphs for value in (*each.inputs, *each.initializers.values()))
    made = (name for node in nodes_in(graph) for name in (node.name, *(value.name for value in node.outputs)))
    taken = {*given, *made}
    while name in taken:
        name += "_"
    return name


def _like(transpose: ir.Node, name: str) -> ir.Node:
    return ir.node("Transpose", transpose.inputs, transpose.attributes, name=name, outputs=[ir.Value(name=name)])
