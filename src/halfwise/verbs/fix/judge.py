"""Fifth step: the verdict on all inputs, searched and held out, of plain FP16 and of the decision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from halfwise.core.finding import Finding
from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.rollout_growth import growth_note
from halfwise.model.inputs.samples import Samples
from halfwise.model.mistyped import mistyped
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.search.judge import Judge, Measured, worst_of
from halfwise.search.lossy_cost import lossy_costs
from halfwise.search.tensor_statistics import ranges_of
from halfwise.search.user_overrides import missed_because_forced
from halfwise.verbs.fix.as_stored import as_stored
from halfwise.verbs.fix.as_typed import as_typed
from halfwise.verbs.fix.feedback import Feedback
from halfwise.verbs.fix.input_headroom import input_headroom
from halfwise.verbs.fix.measurement import FixMeasurement
from halfwise.verbs.fix.model_inputs import InputEffect, input_findings, measured_effects
from halfwise.verbs.fix.open_loops import open_loops
from halfwise.verbs.fix.prepare import Prepared
from halfwise.verbs.fix.promise import Promise, promise_of
from halfwise.verbs.fix.rollout_errors import rollout_record
from halfwise.verbs.fix.vanished_guards import vanished_guards

__all__ = ["Judgement", "input_note", "judge"]


@dataclass(frozen=True, eq=False)
class Judgement:
    """What was measured of the decision that stands, and what there is to say of it."""

    measured: FixMeasurement
    notes: tuple[Note, ...]


def judge(prepared: Prepared, found: Feedback) -> Judgement:
    request, candidate = prepared.request, found.candidate
    decided, decision = candidate.decided, candidate.decision
    lossy = tuple(_lossy_costs(prepared, found))
    validation = found.context.judge(decided.sites, decided.samples.validation)
    request.notify("verifying on held-out inputs")
    narrow = Assignment.all_narrow(prepared.sites, io=request.io_types)
    fp16 = _plain(prepared, found, decided.samples, narrow)
    by_profile = candidate.by_profile(found.context)
    fixed = worst_of(list(by_profile.values()))
    given = list(dict.fromkeys((*decided.samples.search, *decided.samples.validation)))
    typed = as_typed(request.model, found.context.judge(decided.sites, given), given)
    rewritten = as_stored(prepared, validation)
    effects = measured_effects(prepared.inputs, validation)
    findings = tuple(input_findings(effects))
    forced = None if fixed.met else _missed_because_forced(prepared, decision, validation)
    promise = promise_of(prepared, candidate, fixed)
    measured = _measurement(prepared, found, fp16, fixed, typed, by_profile, effects, findings, promise)
    grows = None if measured.rollout is None else growth_note(measured.rollout.fixed)
    near_zero = prepared.context.question.tolerance.decided_by_floor(fp16.outputs, fixed.outputs)
    floors = (Note.of(NoteKind.OUTPUT_FLOOR, name, error=error) for name, error in near_zero.items())
    left = [Note.of(NoteKind.OVERFLOW_LEFT, nodes=list(found.lost))] if found.lost and fixed.met else []
    notes = (
        *left,
        *vanished_guards(decided.sites, decision.formats),
        *(open_loops(decision.assignment) if fixed.met else ()),
        *(input_headroom(decision.assignment, decided.samples) if fixed.met else ()),
        *(promise.notes() if promise is not None else ()),
        *floors,
        *_typed_notes(measured, request.model.given),
        *([rewritten] if rewritten else []),
        *candidate.adjustment.notes,
        *found.notes,
        *lossy,
        *map(input_note, findings),
        *([forced] if forced else []),
        *([grows] if grows else []),
    )
    return Judgement(measured, notes)


def _plain(prepared: Prepared, found: Feedback, samples: Samples, narrow: Assignment) -> Measured:
    """Plain FP16 by the target's profiles; where these have nothing against it, by all that judged the decision."""
    seen = prepared.context.over_all(prepared.sites, samples, narrow)
    if all(each.met for each in seen.values()):
        seen = found.plain.over_all(prepared.sites, samples, narrow)
    return worst_of(list(seen.values()))


def _measurement(
    prepared: Prepared,
    found: Feedback,
    fp16: Measured,
    fixed: Measured,
    typed: Measured | None,
    by_profile: dict[str, Measured],
    effects: tuple[InputEffect, ...],
    findings: tuple[Finding, ...],
    promise: Promise | None,
) -> FixMeasurement:
    tolerance, decided, rollout = prepared.tolerance, found.candidate.decided, prepared.request.rollout
    return FixMeasurement(
        fp16=fp16.outputs,
        fixed=fixed.outputs,
        floats=prepared.floats,
        fp16_verdict=tolerance.verdict(fp16.outputs, prepared.floats, fp16.user_metric),
        verdict=tolerance.verdict(fixed.outputs, prepared.floats, fixed.user_metric),
        typed={} if typed is None else typed.outputs,
        typed_verdict=None if typed is None else tolerance.verdict(typed.outputs, prepared.floats, typed.user_metric),
        by_profile={
            name: tolerance.ratio(seen.outputs, prepared.floats, seen.user_metric) for name, seen in by_profile.items()
        },
        expected=fixed.unseen_bound * prepared.relaxed,
        inputs=effects,
        input_findings=findings,
        ranges=found.candidate.statistics.ranges(),
        powers={value.name or "": bins for value, bins in found.candidate.statistics.powers.items()},
        curve=decided.curve,
        rollout=None if rollout is None else rollout_record(rollout, fp16, fixed),
        diagnosis=decided.diagnosis,
        promise=promise,
    )


def _typed_notes(measured: FixMeasurement, given: Model | None) -> Iterator[Note]:
    verdict = measured.typed_verdict
    if given is not None and (wrong := mistyped(given)) is not None:
        yield Note.of(NoteKind.AS_TYPED_INVALID, wrong.name, op=wrong.op_type)
    if verdict is not None and not verdict.met:
        yield Note.of(NoteKind.AS_TYPED_MISSES, told=verdict.because)


def _missed_because_forced(prepared: Prepared, decision: Decision, validation: Judge) -> Note | None:
    def holds(other: Assignment) -> bool:
        return validation.measure(other).met

    choices = prepared.request.choices
    return missed_because_forced(choices, decision.sites, decision.formats, decision.io_types, holds)


def _lossy_costs(prepared: Prepared, found: Feedback) -> Iterator[Note]:
    """What lossy repairs cost in error, where any was named."""
    request, samples = prepared.request, found.candidate.decided.samples
    if not any(rule.lossy for rule in request.rules):
        return iter(())
    request.notify("measuring what lossy repairs cost")
    statistics = found.context.statistics(prepared.sites, samples.search)
    return lossy_costs(request.rules, request.model, ranges_of(statistics), found.context, samples.validation)


def input_note(found: Finding) -> Note:
    where, message, remedy = found.where.name, found.message, found.remedy
    return Note.of(NoteKind.INPUT_FINDING, where, rule=found.rule, message=message, remedy=remedy)
