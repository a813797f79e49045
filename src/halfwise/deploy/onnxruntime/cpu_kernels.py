"""Keeps out of FP16 what ONNX Runtime's CPU provider loads in FP16 and refuses to run: scatters that compute."""

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

__all__ = ["adjust_scatters", "cpu_refusal_note"]

_RUN = {"ScatterElements": ("none", "min", "max"), "ScatterND": ("none",)}  # reductions in FP16, seen with 1.31


def adjust_scatters(may: Adjustable, start: Adjustment) -> Adjustment:
    """All of them in FP32, where the user lets it."""
    formats = start.decision.formats
    added = []
    for node in _refused(may.assignment(formats)):
        wide = may.widened((node,), formats)
        if wide is not None:
            formats = wide
            because = (Note.of(NoteKind.KEEPS_RUNNABLE, node.op_type),)
            added.append(PlannedNode(node.name or "", node.op_type, Format.FP32, Reason.COMPILER, because))
    return start.to(start.decision.with_formats(formats), added) if added else start


def cpu_refusal_note(assignment: Assignment) -> Note | None:
    """What to say of a model that the CPU provider loads and does not run; None where it does."""
    found = next(_refused(assignment), None)
    return None if found is None else Note.of(NoteKind.ORT_CPU_REFUSES, found.name, op=found.op_type)


def _refused(assignment: Assignment) -> Iterator[ir.Node]:
    for node in assignment.sites.model.nodes:
        if node.op_type not in _RUN or node.domain or assignment.read(node, 0) is not Format.FP16:
            continue
        reduction = attribute(node, "reduction", "none")
        if (reduction.decode() if isinstance(reduction, bytes) else reduction) not in _RUN[node.op_type]:
            yield node
