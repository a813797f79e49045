"""The main job: prepare -> search -> fit to the target -> compile -> judge -> write, frozen data in and out."""

from __future__ import annotations

import time
from dataclasses import replace

from halfwise.core.child.kept import ready
from halfwise.core.formats import Format
from halfwise.core.held_folder import held
from halfwise.core.notes import NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.deploy_files import advisories_for
from halfwise.emulation.profiles import ENGINE
from halfwise.model.inputs.rollout import executions
from halfwise.precision.decision import Adjustment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import least_bytes
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.search.journal import Journal
from halfwise.search.places import Uncomparable
from halfwise.search.prune import Kept
from halfwise.verbs.fix.candidate import Candidate
from halfwise.verbs.fix.compile import compile_decision
from halfwise.verbs.fix.cost import cost_of
from halfwise.verbs.fix.delivered import Delivered, run_delivered
from halfwise.verbs.fix.feedback import Feedback, feedback_on, second_feedback, spared
from halfwise.verbs.fix.fit import fit
from halfwise.verbs.fix.judge import Judgement, judge
from halfwise.verbs.fix.mostly_fp32 import mostly_fp32
from halfwise.verbs.fix.prepare import Prepared, prepare
from halfwise.verbs.fix.request import FixRequest
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.results_folder import check_folder
from halfwise.verbs.fix.runnable import runnable
from halfwise.verbs.fix.search import search
from halfwise.verbs.fix.speed import latency_record
from halfwise.verbs.fix.write import Written, write

__all__ = ["run"]


def run(request: FixRequest) -> FixResult:
    started = time.perf_counter()
    if request.model.files:
        _ = request.model.hashing  # done by the time that a plan names it
    if request.out is None:
        return _run(request, started)
    check_folder(request.out, least_bytes(Sites(request.model)))
    with held(request.out):
        ready()  # what runs the written model loads its libraries beside the search
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
    found, searched = _with_or_without_bf16(prepared), request.plan is None
    judged, written, delivered = _delivered(prepared, found)
    mended = runnable(prepared, found) if searched and delivered is not None and delivered.fails else None
    if mended is not None:
        found = mended
        judged, written, delivered = _delivered(prepared, found)
    decided = found.candidate.decided
    if not any(note.kind is NoteKind.RUNS_SPENT for note in decided.notes):  # else it may go on from there
        prepared.journal.discard()
        prepared.context.emulator.kept.discard()
    runs, seconds = prepared.context.counter.passes(executions(decided.samples.search)), time.perf_counter() - started
    failed = prepared.context.failures.notes
    told = (delivered.note,) if delivered is not None and delivered.note is not None else ()
    notes = tuple(dict.fromkeys((*prepared.notes, *judged.notes, *written.notes, *failed, *told)))
    cost = cost_of(runs, seconds, written.casts, found.candidate.decision, found.candidate.statistics)
    notes = (*mostly_fp32(prepared.context.question.tolerance, judged.measured, cost), *notes)
    latency = latency_record(prepared, found.candidate)
    return FixResult(
        written.decision, judged.measured, written.files, cost, notes, delivered=delivered, latency=latency
    )


def _with_or_without_bf16(prepared: Prepared) -> Feedback:
    """Where an answer with BF16 in it does not hold, the one of FP16 and FP32 alone, unless that is worse."""
    found = _found(prepared)
    if Format.BF16 not in found.candidate.decision.formats.values() or prepared.request.plan is not None:
        return found
    if found.candidate.holds(found.context):
        return found
    plain = _found(replace(prepared, request=replace(prepared.request, allow_bf16=False)))
    return min((plain, found), key=lambda each: each.candidate.ratio(found.context))


def _found(prepared: Prepared) -> Feedback:
    request = prepared.request
    first = _candidate(prepared, prepared.context, prepared.journal)
    searched, forced = request.plan is None, request.choices.forced
    found = feedback_on(first, prepared.context, request.profile, searched=searched, forced=forced)
    if found.in_sight is None:
        return found
    why = f"the tolerance is missed under {', '.join(found.missed)}" if found.missed else "values overflow inside"
    request.notify(f"searching again: {why}")
    return second_feedback(found, _second(prepared, found.in_sight, first), request.profile)


def _delivered(prepared: Prepared, found: Feedback) -> tuple[Judgement, Written, Delivered | None]:
    judged, written = judge(prepared, found), write(prepared, found)
    typed = written.files.typed
    return judged, written, run_delivered(prepared, found.candidate, typed) if typed is not None else None


def _candidate(
    prepared: Prepared, context: EvaluationContext, journal: Journal, first: Candidate | None = None
) -> Candidate:
    """A decision, fitted to the target, and what the compiler makes of it; `first` was found before it."""
    start = frozenset(node.name or "" for node in first.decided.formats) if first is not None else frozenset[str]()
    decided = search(prepared, context, journal, start)
    if first is not None and decided.diagnosis is None:  # what was wrong with the model as given is known from before
        decided = replace(decided, diagnosis=first.decided.diagnosis)
    decided, proven = (
        (decided, frozenset[str]()) if first is None else spared(decided, context, prepared.request.notify)
    )
    if first is not None:
        decided = replace(decided, kept=_remembered(decided, first.decided))
    fitted = fit(prepared, context, decided)
    statistics = context.statistics(decided.sites, decided.samples.search[0])
    advisories = advisories_for(prepared.request.target, decided.model)
    compiled = compile_decision(prepared, context, decided, fitted.decision, statistics, advisories)
    kept = tuple(each for each in decided.kept if each.node in fitted.decision.formats)
    added = (*fitted.added, *(compiled.added if compiled is not None else ()))
    decision = fitted.decision if compiled is None else compiled.decision
    adjustment = Adjustment(decision, added, (*decided.notes, *fitted.notes))
    return Candidate(adjustment, decided, statistics, advisories, compiled, kept, proven)


def _remembered(decided: Decided, first: Decided) -> tuple[Kept, ...]:
    """With what the first search measured of overflows, where all that it kept is kept: none is measured anew."""
    if not {node.name for node in first.formats} <= {node.name for node in decided.formats}:
        return decided.kept
    without = {each.node.name: each.without for each in first.kept if each.why is Reason.OVERFLOW}
    return tuple(
        replace(each, without=without.get(each.node.name))
        if each.why is Reason.OVERFLOW and each.without is None
        else each
        for each in decided.kept
    )


def _second(prepared: Prepared, in_sight: EvaluationContext, first: Candidate) -> Candidate | None:
    """Searched with the first engine's kernels in sight; None where no such answer is worth having."""
    compiled = any(each.profile.name == ENGINE for each in in_sight.also)
    prepared = replace(prepared, samples=first.decided.samples)  # with the inputs that the first search had missed
    try:
        return _candidate(prepared, in_sight, Journal() if compiled else prepared.journal, first)
    except Uncomparable:
        return None
