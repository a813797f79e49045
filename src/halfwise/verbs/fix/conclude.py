"""The result of the main job: what was decided, measured and written, what it took, and all that there is to say."""

from __future__ import annotations

import time

from halfwise.core.notes import QUANTISED_OTHERWISE, Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.model.families import INTEGER_ARITHMETIC, QUANTISERS
from halfwise.model.inputs.rollout import executions
from halfwise.model.model import Model
from halfwise.verbs.fix.budget import budget_notes
from halfwise.verbs.fix.cost import Arithmetic, arithmetic_of, cost_of
from halfwise.verbs.fix.delivery import Delivery
from halfwise.verbs.fix.mostly_fp32 import mostly_fp32
from halfwise.verbs.fix.plain_choice import plain_choice
from halfwise.verbs.fix.prepare import Prepared
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.slower import slower_notes
from halfwise.verbs.fix.speed import latency_record

__all__ = ["conclude"]

_NEAR = frozenset({NoteKind.QUANTISERS_NEAR, NoteKind.ORIGINAL_NEAR})  # that other inputs may miss by themselves


def conclude(prepared: Prepared, delivery: Delivery, started: float) -> FixResult:
    candidate, counter = delivery.found.candidate, prepared.context.counter
    built = {node.name for node in candidate.adjustment.added if node.why is Reason.COMPILER}
    arithmetic = arithmetic_of(candidate.decision, candidate.statistics, built)
    most = _most(prepared, delivery, arithmetic)
    runs, seconds = counter.passes(executions(candidate.decided.samples.search)), time.perf_counter() - started
    written, latency = delivery.written, latency_record(prepared, candidate)
    return FixResult(
        written.decision,
        delivery.judged.measured,
        written.files,
        cost_of(runs, seconds, written.casts, arithmetic),
        (*most, *_notes(prepared, delivery, runs), *slower_notes(prepared, latency)),
        delivered=delivery.delivered,
        latency=latency,
    )


def _most(prepared: Prepared, delivery: Delivery, arithmetic: Arithmetic) -> tuple[Note, ...]:
    """Why most of the arithmetic stays in FP32."""
    tolerance, judged = prepared.context.question.tolerance, delivery.judged
    moved = any(note.kind is NoteKind.VARIANT_MOVED for note in judged.notes)
    near = moved and not prepared.request.choices.kept
    told = mostly_fp32(prepared.request.model, tolerance, judged.measured, arithmetic, near)
    if not any(note.kind is NoteKind.MOST_FOR_MEASURE for note in told):
        return told
    return (*told, *plain_choice(prepared, delivery.found.candidate.decided.samples.all))


def _notes(prepared: Prepared, delivery: Delivery, runs: float) -> tuple[Note, ...]:
    """Each once."""
    context, judged = prepared.context, delivery.judged
    spent = budget_notes(context.counter, runs) if prepared.request.plan is None else ()
    told = (*spent, *prepared.notes, *judged.notes, *delivery.written.notes, *context.failures.notes, *delivery.notes)
    kinds = {note.kind for note in told}
    if NoteKind.QUANTISERS_MOVE in kinds and not judged.measured.verdict.met:  # no more runs help then
        told = tuple(note for note in told if note.kind is not NoteKind.RUNS_SPENT)
    if judged.measured.promise is not None and judged.measured.promise.carried:
        told = tuple(note for note in told if note.kind not in _NEAR)
    model = prepared.request.model
    if kinds & QUANTISED_OTHERWISE:  # no operator is to be replaced then
        told = tuple(note for note in told if not _refuses_quantisers(note, model))
    if NoteKind.NOT_WRITTEN_OUT in kinds:
        told = tuple(note for note in told if note.kind is not NoteKind.PARSER_REFUSES)
    return tuple(dict.fromkeys(told))


def _refuses_quantisers(note: Note, model: Model) -> bool:
    if note.kind not in (NoteKind.OPERATORS_REFUSED, NoteKind.PARSER_REFUSES):
        return False
    nodes = (model.node_by_name.get(name) for name in note.values["nodes"])
    return all(node is not None and node.op_type in QUANTISERS | INTEGER_ARITHMETIC for node in nodes)
