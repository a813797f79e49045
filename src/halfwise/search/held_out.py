"""Decides: searches, repairs where that saves FP32 nodes, and checks on held-out inputs until they are met too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory
from halfwise.model.inputs.samples import Samples
from halfwise.model.inputs.synthetic import vary
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.choices import Choices
from halfwise.precision.sites import Sites
from halfwise.repair import Rule
from halfwise.search.context import EvaluationContext
from halfwise.search.diagnosis import Diagnosis
from halfwise.search.journal import Journal
from halfwise.search.judge import Measured
from halfwise.search.references import References
from halfwise.search.repair_selector import AppliedRepair, Attempt, RepairSelector, Selection
from halfwise.search.search import Kept, Point
from halfwise.search.unseen_bound import bound_for_unseen

__all__ = ["Decided", "HeldOutSearch", "why_not_bf16"]

TURNS = 5  # searches, each told what the one before it missed
WORTH_LOWERING = 1.1  # of the tolerance, expected of inputs not given: a search anew would be decided by chance
TARGET = 0.95  # of the tolerance, for inputs that were not given
LEAST_STEP = 0.3  # of the target before: no search aims at less than this of what the last one reached
HARDER = 1.5  # times the worst ratio searched: such a held-out input teaches more than a lower target
HELD_OUT_TARGET = 0.9  # of the tolerance: a held-out input nearer to it says that others may miss it


@dataclass(frozen=True, eq=False)
class Decided:
    """The decision: the model it is about (repaired or as given), and the formats of the nodes that do not narrow."""

    model: Model
    sites: Sites
    formats: dict[ir.Node, Format]
    kept: tuple[Kept, ...]
    samples: Samples
    repairs: tuple[AppliedRepair, ...] = ()
    curve: tuple[Point, ...] = ()
    notes: tuple[Note, ...] = ()
    diagnosis: Diagnosis | None = None  # None where nothing was wrong or nothing was searched


@dataclass(frozen=True, eq=False)
class HeldOutSearch:
    """One question about one model. What is asked of it, and what is remembered of the answers so far."""

    model: Model
    context: EvaluationContext
    samples: Samples
    rules: Sequence[Rule]
    choices: Choices
    journal: Journal
    allow_bf16: bool
    wants_curve: bool
    notify: Callable[[str], None]

    def run(self) -> Decided:
        """Search; where a held-out input is missed it joins the search, and others stay held out."""
        samples, notes, target = self.samples, list[Note](), 1.0
        near: tuple[Selection, float] | None = None  # met, but inputs not given may miss it
        start = frozenset[str]()
        for turn in range(TURNS):
            found = self._selected(samples, target, start)
            best = found.best
            self.notify("verifying on held-out inputs")
            held_out = self.context.judge(best.search.sites, samples.validation)
            missed = held_out.measure(best.search.assignment(best.solution.keep))
            expected = self._expected(best, missed, samples)
            sites = best.search.sites
            hopeless = len(best.solution.keep) == len(sites.free) - len(sites.forced)
            if near is not None and (hopeless or best.solution.found.unseen_bound > target):
                found, expected = near  # what is not to be had is not worth every node
            elif hopeless or (missed.ratio <= HELD_OUT_TARGET and expected <= WORTH_LOWERING):
                break
            elif turn < TURNS - 1 and missed.ratio > min(HELD_OUT_TARGET, HARDER * best.solution.found.ratio):
                target, near = 1.0, None
                samples, note = _with_the_worst(samples, missed, self.context.references)
                start = frozenset(node.name or "" for node in best.solution.keep)
                notes.append(note)
                continue
            elif turn < TURNS - 1:
                near = found, expected
                target = min(target, best.solution.found.unseen_bound) * max(TARGET / expected, LEAST_STEP)
                continue
            break
        if 1.0 < expected < math.inf:
            notes.append(Note.of(NoteKind.UNSEEN_MAY_MISS, bound=expected))
        if best.solution.keep and best.search.judge.spent:
            notes.append(Note.of(NoteKind.RUNS_SPENT, runs=round(self.context.counter.most_passes)))
        return self._decided(found, samples, tuple(notes))

    def _selected(self, samples: Samples, target: float, start: frozenset[str]) -> Selection:
        selector = RepairSelector(
            self.model, self.context, samples.search, self.choices, self.journal, target, self.notify, start
        )
        return selector.best(self.rules)

    def _decided(self, found: Selection, samples: Samples, notes: tuple[Note, ...]) -> Decided:
        best, solution = found.best, found.best.solution
        formats = dict.fromkeys(solution.keep, Format.FP32)
        if self.allow_bf16:
            formats.update(self._use_bf16(best, samples))
        return Decided(
            best.model,
            best.search.sites,
            formats,
            solution.kept,
            samples,
            found.repairs,
            best.search.curve(solution.noise) if self.wants_curve else (),
            notes,
            found.diagnosis,
        )

    def _expected(self, best: Attempt, held_out: Measured, samples: Samples) -> float:
        """The ratio to expect of inputs that were not given, from all that were."""
        ratios = held_out.ratios if samples.origin == "given" else ()
        return bound_for_unseen((*best.solution.found.ratios, *ratios)) * (1.0 + self.context.question.margin)

    def _use_bf16(self, best: Attempt, samples: Samples) -> dict[ir.Node, Format]:
        """Nodes that only lack range take BF16, as many as the tolerance bears, also of held-out inputs."""
        sites = best.search.sites
        bf16 = Sites(best.model, Format.BF16, self.choices)
        overflowing = [kept.node for kept in best.solution.kept if kept.why is Reason.OVERFLOW]
        able = [node for node in overflowing if why_not_bf16(sites, bf16, node) is None]
        held_out = self.context.judge(sites, samples.validation)
        allowed = max(1.0, held_out.measure(best.search.assignment(best.solution.keep)).ratio) if able else 1.0
        while able:
            formats = {**dict.fromkeys(best.solution.keep, Format.FP32), **dict.fromkeys(able, Format.BF16)}
            self.notify(f"trying BF16 instead of FP32 for {len(able)} nodes")
            trial = Assignment.excepting(sites, formats, self.context.io)
            found = best.search.judge.measure(trial)
            if found.unseen_bound <= 1.0 and held_out.measure(trial).ratio <= allowed:
                return dict.fromkeys(able, Format.BF16)
            able = able[: len(able) // 2]
        return {}


def _with_the_worst(samples: Samples, missed: Measured, references: References) -> tuple[Samples, Note]:
    """The held-out input that did worst joins the search; it judges no more."""
    worst = max(range(len(missed.ratios)), key=lambda i: missed.ratios[i])
    search = (*samples.search, samples.validation[worst])
    rest = tuple(feed for index, feed in enumerate(samples.validation) if index != worst)
    if rest:
        return replace(samples, search=search, validation=rest), Note.of(NoteKind.VALIDATION_MOVED)
    if any(isinstance(feed, Trajectory) for feed in search):
        return replace(samples, search=search, validation=search, origin="derived"), Note.of(NoteKind.ROLLOUT_REUSED)
    rng, first = np.random.default_rng(len(search)), 1 + max(feed.id for feed in samples.all)
    varied = [Feed(first + index, vary(feed, rng=rng)) for index, feed in enumerate(search)]
    variants = tuple(new if _runs(new, references) else feed for new, feed in zip(varied, search, strict=True))
    return replace(samples, search=search, validation=variants, origin="derived"), Note.of(NoteKind.VALIDATION_REPLACED)


def _runs(feed: Feed, references: References) -> bool:
    """Whether FP32 takes a variant, whose values nobody gave."""
    try:
        references.of((feed,))
    except InputError:
        return False
    return True


def why_not_bf16(sites: Sites, bf16: Sites, node: ir.Node) -> Note | None:
    """A node may take BF16 where it can, and where no slot differs from what FP16 may hold."""
    ours, theirs = sites.of[node], bf16.of[node]
    if (ours.inputs, ours.outputs) == (theirs.inputs, theirs.outputs):
        return ours.pinned
    return theirs.pinned or Note.of(NoteKind.NOT_ALSO_BF16)
