"""The main job: prepare -> search -> fit to the target -> compile -> judge -> write, frozen data in and out."""

from __future__ import annotations

import time

from halfwise.core.held_folder import held
from halfwise.model.inputs.rollout import executions
from halfwise.precision.typed_onnx import least_bytes
from halfwise.verbs.fix.budget import budget_notes, may_go_on
from halfwise.verbs.fix.cost import arithmetic_of, cost_of
from halfwise.verbs.fix.decide import decide
from halfwise.verbs.fix.delivered import Delivered, run_delivered
from halfwise.verbs.fix.feedback import Feedback
from halfwise.verbs.fix.judge import Judgement, judge
from halfwise.verbs.fix.mostly_fp32 import mostly_fp32
from halfwise.verbs.fix.prepare import Prepared, prepare
from halfwise.verbs.fix.request import FixRequest
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.results_folder import check_folder
from halfwise.verbs.fix.runnable import runnable
from halfwise.verbs.fix.speed import latency_record
from halfwise.verbs.fix.write import Written, write

__all__ = ["run"]


def run(request: FixRequest) -> FixResult:
    started = time.perf_counter()
    if request.model.files:
        _ = request.model.hashing  # done by the time that a plan names it
    if request.out is None:
        return _run(request, started)
    check_folder(request.out, least_bytes(request.model))
    with held(request.out):
        return _run(request, started)


def _run(request: FixRequest, started: float) -> FixResult:
    prepared = prepare(request)
    try:
        return _answered(prepared, started)
    except Exception:
        if not prepared.journal.resumed:  # else the measurements of an interrupted search are worth keeping
            prepared.context.emulator.kept.discard()
            prepared.journal.withdraw()
        raise


def _answered(prepared: Prepared, started: float) -> FixResult:
    request = prepared.request
    found = decide(prepared)
    judged, written, delivered = _delivered(prepared, found)
    for _ in range(2):  # what runs at last may yet be wrong
        wrong = delivered is not None and delivered.refutes and judged.measured.verdict.met
        if request.plan is not None or delivered is None or not (delivered.fails or wrong):
            break
        mended = runnable(prepared, found, delivered)
        if mended is None:
            break
        found = mended
        judged, written, delivered = _delivered(prepared, found)
    decided, counter = found.candidate.decided, prepared.context.counter
    if not may_go_on(counter, decided.notes):  # else it may go on from there
        prepared.journal.discard()
        prepared.context.emulator.kept.discard()
    runs, seconds = counter.passes(executions(decided.samples.search)), time.perf_counter() - started
    spent = budget_notes(counter, runs) if request.plan is None else ()
    failed = prepared.context.failures.notes
    told = (delivered.note,) if delivered is not None and delivered.note is not None else ()
    notes = tuple(dict.fromkeys((*spent, *prepared.notes, *judged.notes, *written.notes, *failed, *told)))
    arithmetic = arithmetic_of(found.candidate.decision, found.candidate.statistics)
    cost = cost_of(runs, seconds, written.casts, arithmetic)
    notes = (*mostly_fp32(prepared.context.question.tolerance, judged.measured, arithmetic), *notes)
    latency = latency_record(prepared, found.candidate)
    return FixResult(
        written.decision, judged.measured, written.files, cost, notes, delivered=delivered, latency=latency
    )


def _delivered(prepared: Prepared, found: Feedback) -> tuple[Judgement, Written, Delivered | None]:
    judged, written = judge(prepared, found), write(prepared, found)
    typed = written.files.typed
    return judged, written, run_delivered(prepared, found.candidate, typed) if typed is not None else None
