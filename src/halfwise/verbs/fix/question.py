"""What is asked of a model: how its outputs are judged, their FP32 answers, and the error that is allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from halfwise.core.answers import check_answers, only_zero
from halfwise.core.errors import InputError
from halfwise.core.evaluation import evaluate
from halfwise.core.measures.blind import blind_notes, check_equal, sees_nothing
from halfwise.core.measures.named import measure_named
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance import USER_METRIC, Tolerance
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.first_not_finite import lost_from
from halfwise.emulation.observed_ranks import with_observed_ranks
from halfwise.emulation.stepper import Stepper
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory
from halfwise.model.inputs.samples import Samples
from halfwise.model.outputs.kinds import OutputFacts, facts_of, sized_anew
from halfwise.model.outputs.settled import settled
from halfwise.model.outputs.understood import understand
from halfwise.precision.sites import Sites
from halfwise.search.judge import Measured, Question
from halfwise.search.quantiser_steps import MARGIN, MOVED, TF32, Movement, has_quantisers, own_movement
from halfwise.search.references import References
from halfwise.search.run_counter import RunCounter
from halfwise.verbs.fix.original import check_floor
from halfwise.verbs.fix.request import FixRequest
from halfwise.verbs.fix.typed_file import because_stored, held_outputs

__all__ = ["Asked", "Questions", "ask", "questions"]

MOST_STEPS = 5.0  # times the allowed error: more, and a model as near as FP32 still has other answers
NEAR = 0.85  # of the allowed error: what FP16 may come to where FP32 itself is too near for other inputs

Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Asked:
    """The question put: the model with what is watched inside it, its FP32 answers, and what is allowed."""

    request: FixRequest
    samples: Samples
    sites: Sites
    references: References
    tolerance: Tolerance


@dataclass(frozen=True)
class Questions:
    """The question that is judged by, and the one that is searched by, which allows `factor` times as much."""

    stated: Question
    factor: float = 1.0
    notes: tuple[Note, ...] = ()

    @property
    def searched(self) -> Question:
        stated = self.stated
        return stated if self.factor == 1.0 else replace(stated, tolerance=stated.tolerance.relaxed(self.factor))


def ask(
    request: FixRequest,
    samples: Samples,
    emulator: Emulator,
    counter: RunCounter,
    steps: Mapping[int, Outputs] | None = None,
) -> Asked:
    """How outputs are judged follows from the answers, for which more may have to be watched than is judged then.

    `steps` are FP32's answers to those of a stream, by the number of the feed.
    """
    request, seen = _ranked(request, samples, emulator, counter)
    known = {**(steps or {}), **seen}
    stated = _stated(request)
    facts, watched = _watched(request, stated)
    sites = Sites(replace(request.model, watched=watched))
    original = request.original
    right = None if original is None else References(Sites(original.model), emulator, counter)
    references = References(sites, emulator, counter, right, known)
    samples, answers = _answered(samples, references)
    request, tolerance = _judged_by(_held(request, samples, sites, emulator, answers), facts, stated, answers)
    if original is not None:
        check_floor(original, answers, references.own(samples.all), tolerance)
    if watched != tolerance.inner or request.model.interface != sites.model.interface:
        sites = Sites(replace(request.model, watched=tolerance.inner))
        references = references.keeping(sites)
    return Asked(replace(request, model=sites.model), samples, sites, references, tolerance)


def _held(
    request: FixRequest, samples: Samples, sites: Sites, emulator: Emulator, answers: Sequence[Outputs]
) -> FixRequest:
    """With outputs in FP32 that the format asked for cannot hold. Answers in which nothing is finite are refused."""
    outputs = [{name: answer[name] for name in request.model.output_names} for answer in answers]
    try:
        check_answers(outputs, samples.notes, partial(_lost_from, samples, sites, emulator))
    except InputError as error:
        if not settled(request.model):
            raise (because_stored(request.model) or error) from None
        request = replace(request, notes=(*request.notes, Note.of(NoteKind.NOTHING_FINITE)))
    empty = [] if settled(request.model) else only_zero(outputs, request.model.output_names)
    request = replace(request, notes=(*request.notes, *(Note.of(NoteKind.ONLY_ZERO, name) for name in empty)))
    model, widened = held_outputs(request.model, outputs, request.io_types)
    return replace(request, model=model, notes=(*request.notes, *widened))


def _judged_by(
    request: FixRequest, facts: OutputFacts | None, stated: Tolerance | None, answers: Sequence[Outputs]
) -> tuple[FixRequest, Tolerance]:
    """With the metric that the tolerance bounds, and the tolerance as it is understood from the answers."""
    if facts is not None:
        assert not isinstance(request.tolerance, Tolerance)
        stated = understand(facts, request.tolerance, request.metric, answers).tolerance
    assert stated is not None
    if request.plan is not None and not request.plan.sha256:  # its sizes may be those of other weights
        stated = replace(stated, kinds=sized_anew(stated.kinds, answers))
    outputs = [{name: answer[name] for name in request.model.output_names} for answer in answers]
    stated.check_outputs(outputs[0])
    if stated.measure and request.metric is None:
        request = replace(request, metric=measure_named(stated.measure))
    if not stated.uses_user_metric:
        return request, stated
    if request.metric is None:
        raise InputError("the plan's tolerance bounds your own metric: name its function with --metric")
    check_equal(request.metric, min(b.value for b in stated.bounds if b.metric == USER_METRIC), outputs[0])
    blind = blind_notes(request.metric, [sees_nothing(request.metric, answer) for answer in outputs])
    return replace(request, notes=(*request.notes, *blind)), stated


def _ranked(
    request: FixRequest, samples: Samples, emulator: Emulator, counter: RunCounter
) -> tuple[FixRequest, Mapping[int, Outputs]]:
    """With the ranks that only a run tells, on which rules depend; and what FP32 answered in that run."""
    given = [feed.steps[0] if isinstance(feed, Trajectory) else feed for feed in samples.all]
    watched = _watched(request, _stated(request))[1]
    model, answers = with_observed_ranks(replace(request.model, watched=watched), given, emulator)
    counter.add(len(answers))
    known = {feed.id: answer for feed, answer in zip(given, answers, strict=False) if not isinstance(answer, Exception)}
    return replace(request, model=replace(request.model, ir=model.ir)), known


def _watched(request: FixRequest, stated: Tolerance | None) -> tuple[OutputFacts | None, tuple[str, ...]]:
    """What the graph says of the outputs, where no tolerance is stated as a whole; and tensors inside to look at."""
    if stated is not None:
        return None, stated.inner
    facts = facts_of(request.model)
    return facts, facts.inner


def _answered(samples: Samples, references: References) -> tuple[Samples, list[dict[str, NDArray[Any]]]]:
    """With FP32's answers. Variants that FP32 refuses, as of a scale that it reads, are the only input once more."""
    try:
        return samples, references.of(samples.all)
    except InputError:
        if samples.origin != "derived":
            raise
    notes = tuple(n for n in samples.notes if n.kind is not NoteKind.ONE_SAMPLE)
    constant = Note.of(NoteKind.ONE_CONSTANT_SAMPLE)
    same = replace(samples, validation=samples.search, notes=(*notes, constant))
    return same, references.of(same.all)


def _lost_from(samples: Samples, sites: Sites, emulator: Emulator) -> str:
    feed = samples.all[0]
    first = feed.steps[0] if isinstance(feed, Trajectory) else feed
    return lost_from(sites, Stepper(emulator), widen_feeds(first), samples.notes)


def _stated(request: FixRequest) -> Tolerance | None:
    """The tolerance where it is given as a whole."""
    if request.plan is not None and not request.tolerance:
        return request.plan.tolerance
    return request.tolerance if isinstance(request.tolerance, Tolerance) else None


def questions(
    asked: Asked, margin: float, searched: Sequence[Feed], emulator: Emulator, counter: RunCounter
) -> Questions:
    """Of a model that quantises, a tiny change moves values by whole steps, which no choice of formats prevents.

    What other FP32 kernels miss is out of reach. Where they keep it, what TF32 kernels would do is allowed by default,
    up to a bound beyond which nobody would call it met. Where they keep it on these inputs only, FP16 may, too.
    """
    request = asked.request
    stated = Question(asked.tolerance, request.metric, len(asked.samples.all), margin)
    if (near := _near_original(asked, stated)) is not None:
        return near
    if not has_quantisers(asked.sites):
        return Questions(stated)
    movements = (
        Movement(asked.sites, emulator, stated, feeds, asked.references.of(feeds), counter)
        for feeds in (searched, asked.samples.all)
    )
    moves = own_movement(*movements)
    if moves.as_tf32 <= 1.0:
        return Questions(stated)
    if 1.0 < moves.fp32 < math.inf:
        told = Note.of(NoteKind.QUANTISERS_MOVE, ratio=moves.fp32, moved=MOVED)
        return Questions(stated, moves.as_tf32, (told,))
    if moves.fp32 <= 1.0 and not request.tolerance and request.plan is None and request.metric is None:
        if moves.as_tf32 > MOST_STEPS:
            told = Note.of(NoteKind.QUANTISERS_MOVE, ratio=moves.as_tf32 / MARGIN, moved=TF32)
            return Questions(stated, moves.as_tf32, (told,))
        wider = replace(stated, tolerance=stated.tolerance.relaxed(moves.as_tf32))
        return Questions(wider, notes=(Note.of(NoteKind.QUANTISERS_ALLOW, factor=moves.as_tf32),))
    if 0.0 < moves.fp32 <= NEAR and moves.unseen > 1.0:
        told = Note.of(NoteKind.QUANTISERS_NEAR, ratio=moves.fp32, moved=MOVED)
        return Questions(stated, min(NEAR * moves.unseen / moves.fp32, moves.as_tf32), (told,))
    return Questions(stated)


def _near_original(asked: Asked, stated: Question) -> Questions | None:
    """Weights that are not the original's, as packed ones, have an error that no choice of formats lessens. Where it
    leaves little room, what it comes to on other inputs is no reason for FP32 nodes."""
    request, samples = asked.request, asked.samples
    if request.original is None or request.rollout is not None or samples.origin == "synthetic":
        return None
    right, own = asked.references.of(samples.all), asked.references.own(samples.all)
    found = Measured.of(evaluate(right, own, stated.tolerance, stated.own_metric), stated)
    if not 0.0 < found.ratio <= 1.0 or found.unseen_bound <= 1.0:
        return None
    told = Note.of(NoteKind.ORIGINAL_NEAR, request.original.name, ratio=found.ratio)
    return Questions(stated, max(NEAR, (1.0 + found.ratio) / 2) * found.unseen_bound / found.ratio, (told,))
