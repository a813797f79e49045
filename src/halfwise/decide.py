"""Decides: searches, repairs where that saves FP32 nodes, and checks on held-out inputs until they are met too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from halfwise.bench import Bench
from halfwise.formats import Format
from halfwise.model import Model
from halfwise.precision import Assignment
from halfwise.repair import Rule
from halfwise.repairing import Attempt, Bought, Workshop
from halfwise.samples import Samples
from halfwise.sites import Sites
from halfwise.solve.diagnosis import Diagnosis
from halfwise.solve.journal import Journal
from halfwise.solve.judge import Measured
from halfwise.solve.search import Kept, Point

__all__ = ["Decided", "Decider", "assignment_of", "why_not_bf16"]

TIGHTENINGS = 4  # times the search goes on after a held-out input was missed
HELD_OUT_AIM = 0.9  # of the tolerance: a held-out input nearer to it says that others may miss it


@dataclass(frozen=True, eq=False)
class Decided:
    """The decision: the model it is about (repaired or as given), and the formats of the nodes that do not narrow."""

    model: Model
    sites: Sites
    formats: dict[ir.Node, Format]
    kept: tuple[Kept, ...]
    samples: Samples
    repairs: tuple[Bought, ...] = ()
    curve: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()
    tried: tuple[Point, ...] = ()  # what the search measured on its way
    diagnosis: Diagnosis | None = None  # None where nothing was wrong or nothing was searched


@dataclass
class Decider:
    model: Model
    bench: Bench
    samples: Samples
    rules: Sequence[Rule]
    journal: Journal
    allow_bf16: bool
    wants_curve: bool
    notify: Callable[[str], None]
    notes: list[str] = field(default_factory=list)

    def run(self) -> Decided:
        """Search; where a held-out input is missed it joins the search, and others stay held out."""
        aim = 1.0
        for turn in range(TIGHTENINGS + 1):
            workshop = Workshop(self.model, self.bench, self.samples.search, self.journal, aim, self.notify)
            best, repairs = workshop.best(self.rules)
            self.notify("verifying on held-out inputs")
            held_out = self.bench.judge(best.search.sites, self.samples.validation)
            missed = held_out.measure(best.search.assignment(best.solution.keep))
            sites = best.search.sites
            hopeless = len(best.solution.keep) == len(sites.free) - len(sites.forced)
            if missed.load <= HELD_OUT_AIM or hopeless or turn == TIGHTENINGS:
                break
            aim = self._learn(missed, min(aim, best.solution.found.aim))
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
            best.search.tried(),
            workshop.diagnosis(),
        )

    def _learn(self, missed: Measured, aim: float) -> float:
        worst = max(range(len(missed.loads)), key=lambda i: missed.loads[i])
        if len(self.samples.validation) > 1:
            moved = self.samples.validation[worst]
            rest = tuple(f for i, f in enumerate(self.samples.validation) if i != worst)
            self.samples = replace(self.samples, search=(*self.samples.search, moved), validation=rest)
            self.notes.append("a held-out input came too near the tolerance and joined the search; the others judge")
            return 1.0
        tighter = aim * max(0.9 / missed.loads[worst], 0.1) if math.isfinite(missed.loads[worst]) else aim / 2
        self.notes.append(
            f"the held-out input came too near the tolerance; the search then aimed at {tighter:.0%} of the tolerance"
        )
        return tighter

    def _use_bf16(self, best: Attempt) -> dict[ir.Node, Format]:
        """Nodes that only lack range take BF16, as many as the tolerance bears."""
        sites = best.search.sites
        bf16 = Sites(best.model, Format.BF16)
        able = [k.node for k in best.solution.kept if k.why == "overflow" and why_not_bf16(sites, bf16, k.node) is None]
        while able:
            formats = {**dict.fromkeys(best.solution.keep, Format.FP32), **dict.fromkeys(able, Format.BF16)}
            self.notify(f"BF16 instead of FP32 for {len(able)} nodes")
            if best.search.judge.measure(assignment_of(sites, formats, self.bench.io)).aim <= 1.0:
                return dict.fromkeys(able, Format.BF16)
            able = able[: len(able) // 2]
        return {}


def assignment_of(sites: Sites, formats: dict[ir.Node, Format], io: Format) -> Assignment:
    """Every free node narrow but for those with a format of their own."""
    chosen = {site.node: formats.get(site.node, sites.fmt) for site in sites.free}
    return Assignment(sites, {n: f for n, f in chosen.items() if f is not Format.FP32}, io)


def why_not_bf16(sites: Sites, bf16: Sites, node: ir.Node) -> str | None:
    """A node may take BF16 where it can, and where no slot differs from what FP16 may hold."""
    ours, theirs = sites.of[node], bf16.of[node]
    if (ours.inputs, ours.outputs) == (theirs.inputs, theirs.outputs):
        return ours.pinned
    return theirs.pinned or "not every input that may be FP16 may be BF16"
