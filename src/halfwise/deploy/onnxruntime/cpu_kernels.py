"""Keeps out of FP16 what ONNX Runtime loads in FP16 and refuses to run.

The CPU provider refuses scatters that compute. AffineGrid of pictures has no FP16 kernel on any provider, and the steps
that it is expanded to read its size wrongly; of volumes they are right.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.onnxruntime.adjustable import Adjustable
from halfwise.model.patterns.view import attribute
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment
from halfwise.precision.plan import PlannedNode

__all__ = ["adjust_refused", "cpu_refusal_note"]

_RUN = {"ScatterElements": ("none", "min", "max"), "ScatterND": ("none",)}  # reductions in FP16, seen with 1.31


def adjust_refused(may: Adjustable, start: Adjustment, *, on_cpu: bool) -> Adjustment:
    """All of them in FP32, where the user lets it."""
    formats = start.decision.formats
    added = []
    for node, because in _refused(may.assignment(formats), on_cpu):
        wide = may.widened((node,), formats)
        if wide is not None:
            formats = wide
            added.append(PlannedNode(node.name or "", node.op_type, Format.FP32, Reason.COMPILER, (because,)))
    return start.to(start.decision.with_formats(formats), added) if added else start


def cpu_refusal_note(assignment: Assignment) -> Note | None:
    """What to say of a model that the CPU provider loads and does not run; None where it does."""
    found = next((node for node in _narrow(assignment) if _is_refused_scatter(node)), None)
    return None if found is None else Note.of(NoteKind.ORT_CPU_REFUSES, found.name, op=found.op_type)


def _refused(assignment: Assignment, on_cpu: bool) -> Iterator[tuple[ir.Node, Note]]:
    for node in _narrow(assignment):
        if _is_grid_of_pictures(node):
            yield node, Note.of(NoteKind.KEEPS_EXPANDABLE, node.op_type)
        elif on_cpu and _is_refused_scatter(node):
            yield node, Note.of(NoteKind.KEEPS_RUNNABLE, node.op_type)


def _narrow(assignment: Assignment) -> Iterator[ir.Node]:
    for node in assignment.sites.model.nodes:
        if not node.domain and node.inputs and assignment.read(node, 0) is Format.FP16:
            yield node


def _is_grid_of_pictures(node: ir.Node) -> bool:
    """Or may be one: its transforms are not known to be of volumes."""
    if node.op_type != "AffineGrid":
        return False
    of = node.inputs[0].shape if node.inputs[0] is not None else None
    return of is None or of[-1] != 4


def _is_refused_scatter(node: ir.Node) -> bool:
    if node.op_type not in _RUN:
        return False
    reduction = attribute(node, "reduction", "none")
    return (reduction.decode() if isinstance(reduction, bytes) else reduction) not in _RUN[node.op_type]
