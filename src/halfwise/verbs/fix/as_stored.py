"""The error in FP32 of a quantised model that was written as its target reads it, beside the model of the file."""

from __future__ import annotations

from dataclasses import replace

from halfwise.core.notes import Note, NoteKind
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.repair.block_weights import PACKED
from halfwise.search.judge import Judge
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["as_stored"]

_DEQUANTISE = frozenset({*PACKED, "DequantizeLinear"})


def as_stored(prepared: Prepared, validation: Judge) -> Note | None:
    """What the weights of a block have in common is multiplied apart, as `repair.block_weights` says. Where both parts
    of a product are much larger than their sum, even FP32 loses it. Measured on one input: the model of the file is
    the reference nowhere else."""
    request = prepared.request
    stored = request.stored
    if stored is None or request.rollout is not None or not any(node.op_type in _DEQUANTISE for node in stored.nodes):
        return None
    sites = Sites(replace(stored, watched=request.model.watched))
    feeds, answers, counter = validation.feeds[:1], validation.references[:1], validation.counter
    found = Judge(sites, validation.emulator, validation.question, feeds, answers, counter=counter)
    measured = found.measure(Assignment(sites, {}))
    verdict = prepared.tolerance.verdict(measured.outputs, prepared.floats, measured.user_metric)
    return None if verdict.met else Note.of(NoteKind.REWRITING_MISSES, request.target.title, told=verdict.because)
