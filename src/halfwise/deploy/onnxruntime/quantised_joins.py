"""Keeps joins of quantised tensors in FP32 for ONNX Runtime's CPU provider, which makes operators of integers of them.

DequantizeLinear -> Concat -> QuantizeLinear becomes one QLinearConcat whatever the scales are, where nothing else reads
the floats between, and QLinearConcat takes no FP16 scale: the model would not load. Other operators between quantisers
stay apart where their scales are FP16. Only integers enter and leave such a join, so it takes no Cast in FP32: what is
meant for a GPU, where it loads either way, is spared the refusal on a CPU too.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.onnxruntime.adjustable import Adjustable
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment
from halfwise.precision.plan import PlannedNode

__all__ = ["adjust_joins"]

_SCALE = 1  # the slot of a quantiser


def adjust_joins(may: Adjustable, start: Adjustment, *, on_cpu: bool) -> Adjustment:
    """The nodes of each such join in FP32, where the user lets it; if not `on_cpu`, where that holds."""
    formats, added = start.decision.formats, list[PlannedNode]()
    for join in _joins(may.assignment(formats)):
        wide = may.widened(join, formats)
        if wide is not None:
            because = (Note.of(NoteKind.KEEPS_RUNNABLE, "Concat"),)
            fresh = [node for node in join if not may.is_wide(node, formats)]
            added += [PlannedNode(n.name or "", n.op_type, Format.FP32, Reason.COMPILER, because) for n in fresh]
            formats = wide
    if not added or not (on_cpu or may.holds(may.assignment(formats))):
        return start
    return start.to(start.decision.with_formats(formats), added)


def _joins(assignment: Assignment) -> Iterator[tuple[ir.Node, ...]]:
    for node in assignment.sites.model.nodes:
        if node.op_type != "Concat" or node.domain:
            continue
        makers = [value.producer() if value is not None else None for value in node.inputs]
        before = [maker for maker in makers if maker is not None and _is(maker, "DequantizeLinear")]
        behind = [reader for reader, slot in node.outputs[0].uses() if slot == 0 and _is(reader, "QuantizeLinear")]
        group = (*dict.fromkeys(before), node, *behind)
        if len(before) < len(makers) or len(behind) != 1 or any(_read_elsewhere(each, group) for each in group[:-1]):
            continue
        if any(assignment.read(each, _SCALE) is Format.FP16 for each in group if each is not node):
            yield group


def _read_elsewhere(node: ir.Node, group: tuple[ir.Node, ...]) -> bool:
    value = node.outputs[0]
    return value.is_graph_output() or any(use.node not in group for use in value.uses())


def _is(node: ir.Node, op: str) -> bool:
    return node.op_type == op and not node.domain
