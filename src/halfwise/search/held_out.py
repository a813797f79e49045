"""Decides: searches, repairs where that saves FP32 nodes, and checks on held-out inputs until they are met too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
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
from halfwise.search.repair_selector import AppliedRepair, Attempt, RepairSelector
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


@dataclass
class HeldOutSearch:
    model: Model
    context: EvaluationContext
    samples: Samples
    rules: Sequence[Rule]
    choices: Choices
    journal: Journal
    allow_bf16: bool
    wants_curve: bool
    notify: Callable[[str], None]
    notes: list[Note] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stated = Sites(self.model, choices=self.choices)

    def run(self) -> Decided:
        """Search; where a held-out input is missed it joins the search, and others stay held out."""
        target = 1.0
        near: tuple[Attempt, tuple[AppliedRepair, ...], float] | None = None  # met, but inputs not given may miss it
        for turn in range(TURNS):
            selector = RepairSelector(
                self.model, self.context, self.samples.search, self.choices, self.journal, target, self.notify
            )
            best, repairs = selector.best(self.rules)
            self.notify("verifying on held-out inputs")
            held_out = self.context.judge(best.search.sites, self.samples.validation)
            missed = held_out.measure(best.search.assignment(best.solution.keep))
            expected = self._expected(best, missed)
            sites = best.search.sites
            hopeless = len(best.solution.keep) == len(sites.free) - len(sites.forced)
            if near is not None and (hopeless or best.solution.found.unseen_bound > target):
                best, repairs, expected = near  # what is not to be had is not worth every node
            elif hopeless or (missed.ratio <= HELD_OUT_TARGET and expected <= WORTH_LOWERING):
                break
            elif turn < TURNS - 1 and missed.ratio > min(HELD_OUT_TARGET, HARDER * best.solution.found.ratio):
                target, near = 1.0, None
                self._learn(missed)
                continue
            elif turn < TURNS - 1:
                near = best, repairs, expected
                target = min(target, best.solution.found.unseen_bound) * max(TARGET / expected, LEAST_STEP)
                continue
            break
        if expected > 1.0:
            self.notes.append(Note.of(NoteKind.UNSEEN_MAY_MISS, bound=expected))
        formats = dict.fromkeys(best.solution.keep, Format.FP32)
        if self.allow_bf16:
            formats.update(self._use_bf16(best))
        return Decided(
            best.model,
            best.search.sites,
            formats,
            best.solution.kept,
            self.samples,
            repairs,
            best.search.curve() if self.wants_curve else (),
            tuple(self.notes),
            selector.diagnosis(),
        )

    def _expected(self, best: Attempt, held_out: Measured) -> float:
        """The ratio to expect of inputs that were not given, from all that were."""
        ratios = held_out.ratios if self.samples.origin == "given" else ()
        return bound_for_unseen((*best.solution.found.ratios, *ratios)) * (1.0 + self.context.question.margin)

    def _learn(self, missed: Measured) -> None:
        """The held-out input that did worst joins the search; it judges no more."""
        worst = max(range(len(missed.ratios)), key=lambda i: missed.ratios[i])
        moved = self.samples.validation[worst]
        search = (*self.samples.search, moved)
        rest = tuple(f for i, f in enumerate(self.samples.validation) if i != worst)
        if rest:
            self.notes.append(Note.of(NoteKind.VALIDATION_MOVED))
            self.samples = replace(self.samples, search=search, validation=rest)
            return
        self.notes.append(Note.of(NoteKind.VALIDATION_REPLACED))
        rng = np.random.default_rng(len(search))
        variants = tuple(vary(feed, rng=rng) for feed in search)
        self.context.add(self.stated, variants)
        self.samples = replace(self.samples, search=search, validation=variants, origin="derived")

    def _use_bf16(self, best: Attempt) -> dict[ir.Node, Format]:
        """Nodes that only lack range take BF16, as many as the tolerance bears."""
        sites = best.search.sites
        bf16 = Sites(best.model, Format.BF16, self.choices)
        overflowing = [kept.node for kept in best.solution.kept if kept.why is Reason.OVERFLOW]
        able = [node for node in overflowing if why_not_bf16(sites, bf16, node) is None]
        while able:
            formats = {**dict.fromkeys(best.solution.keep, Format.FP32), **dict.fromkeys(able, Format.BF16)}
            self.notify(f"BF16 instead of FP32 for {len(able)} nodes")
            if best.search.judge.measure(Assignment.excepting(sites, formats, self.context.io)).unseen_bound <= 1.0:
                return dict.fromkeys(able, Format.BF16)
            able = able[: len(able) // 2]
        return {}


def why_not_bf16(sites: Sites, bf16: Sites, node: ir.Node) -> Note | None:
    """A node may take BF16 where it can, and where no slot differs from what FP16 may hold."""
    ours, theirs = sites.of[node], bf16.of[node]
    if (ours.inputs, ours.outputs) == (theirs.inputs, theirs.outputs):
        return ours.pinned
    return theirs.pinned or Note.of(NoteKind.NOT_ALSO_BF16)
