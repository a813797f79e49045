"""Finds the FP32 nodes: nothing if nothing is needed; else what the noise model ranks first, measured and pruned."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.reasons import Reason
from halfwise.core.wording import counted
from halfwise.emulation.stepper import Stepper
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.choose import Ladder, trim
from halfwise.search.journal import Journal
from halfwise.search.judge import Judge, Measured
from halfwise.search.noise import Noise
from halfwise.search.noise_model import NoiseModel, lost_in, measure_noise, noise_of_worst, relative_bounds
from halfwise.search.places import refuse_share, refuse_unsteady
from halfwise.search.prune import Kept, Pruning, kept_node
from halfwise.search.run_counter import Untried
from halfwise.search.serving import deciding, missed, serving
from halfwise.search.sets import Sets, worst_first
from halfwise.search.speed import TimeTable
from halfwise.search.walks import CLOSE, Walks

__all__ = ["LEAST_SETS", "Kept", "Point", "Search", "Solution"]

Notify = Callable[[str], None]

LEAST_SETS = 2  # measured in any search: one from the ladder, and all that it names
TRIES = 8  # of a set of nodes before falling back to all that the ladder names
LEAST_TRIES = 4  # of them also where the runs are spent: all that it names is a bad answer
LEAST_HALVINGS = 4  # of all that it names, also where the runs are spent
RELAXATIONS = 5  # smaller sets to try where the first that met left room
GROWTHS = 3  # of a set that another search found
WORTH_RELAXING = 8  # nodes; fewer are reverted one by one at once


@dataclass(frozen=True)
class Point:
    """A point of the trade-off: so many nodes in FP32, so much error."""

    nodes: int
    cost: float
    predicted: float
    measured: float | None


@dataclass(frozen=True)
class Solution:
    """The answer of a search; `fp16` and `found` were measured on the search samples."""

    keep: frozenset[ir.Node]
    kept: tuple[Kept, ...]
    fp16: Measured
    found: Measured
    noise: NoiseModel | None = None  # None where it was not needed


@dataclass(frozen=True, eq=False)
class Search:
    """One search over one model. `target_ratio` is the ratio to reach on the search samples, margin included."""

    sites: Sites
    judge: Judge
    stepper: Stepper
    journal: Journal = field(default_factory=Journal)
    io: Format = Format.FP32
    target_ratio: float = 1.0
    label: str = ""  # of the model and the question, where the journal holds measurements of several
    name: str = ""  # of the model alone
    must: frozenset[ir.Node] = frozenset()  # stays in FP32, however small the error without
    ends: frozenset[ir.Node] = frozenset()  # those of it that repairs added at the ends of the graph
    notify: Notify = lambda _: None
    table: TimeTable | None = None  # what nodes cost, where that is their time
    walks: Walks = CLOSE

    @cached_property
    def sets(self) -> Sets:
        return Sets(self.sites, self.judge, self.stepper, self.journal, self.io, self.label, self.must, self.name)

    @property
    def overflowing(self) -> frozenset[ir.Node]:
        return self.must - self.ends

    # -- the way to an answer ---------------------------------------------------------------------------------------

    def run(
        self, *, prune: bool = True, start: frozenset[ir.Node] = frozenset(), noise: NoiseModel | None = None
    ) -> Solution:
        """Without pruning the set keeps the tolerance, but more may be in it than is needed.

        `start` is tried first, and with a few more nodes. `noise` is what an earlier search of this model saw.
        """
        found = self._run(prune, start, noise)
        if not self.must:
            return found
        lost = replace(found.fp16, ratios=(math.inf,) * len(found.fp16.ratios)) if self.overflowing else found.fp16
        also = tuple(Kept(node, Reason.OVERFLOW, None) for node in self.must - found.keep)
        return replace(found, keep=found.keep | self.must, kept=(*found.kept, *also), fp16=lost)

    def _run(self, prune: bool, start: frozenset[ir.Node], noise: NoiseModel | None) -> Solution:
        self.notify("running the FP32 model and the all-FP16 model")
        nothing: frozenset[ir.Node] = frozenset()
        fp16 = self.measure(nothing)
        if fp16.unseen_bound <= self.target_ratio:
            return Solution(nothing, (), fp16, fp16, noise)
        refuse_unsteady(self.judge, fp16.uncompared)
        self.judge.counter.look()
        noise = noise or self.noise()
        start = start - self.must
        if start and self.measure(start).unseen_bound <= self.target_ratio:
            keep = start
        else:
            grown = self._grown(start, noise) if start else None
            keep, noise = (grown, noise) if grown is not None else self._reach(fp16, noise)
        refuse_share(fp16.uncompared, len(keep), len(self.sites.free))
        found = self.measure(keep)
        if found.unseen_bound > self.target_ratio and not found.met:
            all_of_it = tuple(Kept(node, Reason.EXHAUSTED, None) for node in keep)
            return Solution(keep, all_of_it, fp16, found, noise)
        if not prune:
            return Solution(keep, tuple(kept_node(node, None, noise.fatal) for node in keep), fp16, found, noise)
        keep = self._for_missed(keep, fp16)
        keep, kept = Pruning(self.sets, self.target_ratio, noise.cost, noise.fatal, self.notify).run(keep - self.must)
        return Solution(keep, kept, fp16, self.measure(keep), noise)

    def lost(self) -> Solution | None:
        """The nodes that overflow in the worst sample, which nobody has tried in FP32; None where none does, or plain
        FP16 is enough."""
        self.notify("running the FP32 model and the all-FP16 model")
        fp16 = self.measure(frozenset())
        if self.must or fp16.unseen_bound <= self.target_ratio:
            return None
        refuse_unsteady(self.judge, fp16.uncompared)
        self.judge.counter.look()
        noise = self._priced(noise_of_worst(self.sets, fp16, self.notify))
        kept = tuple(kept_node(node, None, noise.fatal) for node in noise.fatal)
        return Solution(noise.fatal, kept, fp16, fp16, noise) if noise.fatal else None

    def noise(self) -> NoiseModel:
        """What FP16 does to this model, from a walk over the worst samples."""
        return self._priced(measure_noise(self.sets, self.measure(frozenset()), self.notify, self.walks))

    def _priced(self, noise: NoiseModel) -> NoiseModel:
        return noise if self.table is None else replace(noise, cost=self.table.costs())

    def curve(self, noise: NoiseModel | None = None, points: int = 8) -> tuple[Point, ...]:
        """Error against FP32 cost, from nothing kept to all that matters: predicted along the way, measured at some."""
        ladder = (noise or self.noise()).ladder()
        steps = len(ladder.steps)
        counts = sorted({0, *(min(round(steps ** (i / (points - 1))), steps) for i in range(points))})
        found = []
        for count in counts:
            nodes = ladder.nodes(count)
            self.notify(f"measuring the error with {counted(len(nodes), 'FP32 node')}")
            if not self.judge.affords(Untried.CURVE):
                break
            ratio = self.measure(nodes).ratio
            cost = ladder.steps[count - 1].cost if count else 0.0
            found.append(Point(len(nodes), cost, math.sqrt(ladder.left(count)), ratio))
        return tuple(found)

    def measure(self, keep: frozenset[ir.Node]) -> Measured:
        """The error with just these nodes in FP32; each set is run once."""
        return self.sets.measure(keep)

    def assignment(self, keep: frozenset[ir.Node]) -> Assignment:
        return self.sets.assignment(keep)

    # -- reaching the tolerance -------------------------------------------------------------------------------------

    def _reach(self, fp16: Measured, noise: NoiseModel) -> tuple[frozenset[ir.Node], NoiseModel]:
        """Sets from the ladder, larger as measured, until one is within the target; and the noise as known by then."""
        everything = frozenset(site.node for site in self.sites.free) - self.sites.forced
        ladder = noise.ladder()
        if not ladder.steps:
            return everything, noise
        goal = self._first_goal(fp16, ladder, noise)
        low, last, known = 0, fp16, frozenset[ir.Node]()  # steps known not to be enough, and what they left
        for attempt in range(TRIES):
            if attempt >= LEAST_TRIES and self.judge.spent:
                break
            if attempt and not self.judge.affords(Untried.SETS, 2):  # all that it names has to be measured, too
                break
            count = max(ladder.reach(goal), low + 1)
            if count > len(ladder.steps):
                break
            keep = trim(noise.pieces, ladder.nodes(count), noise.cost, max(goal, ladder.left(count)))
            self.notify(f"trying {counted(len(keep), 'FP32 node')} (attempt {attempt + 1})")
            fewer = self._relax(keep, ladder, self._told_by_one(keep, fp16), noise)
            if fewer != keep:
                return fewer, noise
            measured = self.measure(keep)
            if measured.unseen_bound <= self.target_ratio:
                return self._relax(keep, ladder, measured.unseen_bound, noise), noise
            if self._contradicts(measured, keep, last, known, noise):
                told = self._lost(keep, measured, noise)
                if told is None and (hidden := self.find_hidden(keep, ladder, measured, noise)):
                    told = noise.with_piece(hidden)
                if told is not None:
                    noise = told
                    ladder, low, last, known = noise.ladder(), 0, fp16, frozenset()
                    continue
            last, known = measured, keep
            left = noise.left(keep)
            if math.isfinite(measured.unseen_bound) and left > 0:
                goal = min(goal / 1.5, left * (0.9 * self.target_ratio / measured.unseen_bound) ** 2)
            else:
                goal /= 4
            low = count
        keep = self._bisect(ladder, min(low, len(ladder.steps) - 1), everything)
        return self._for_choices(keep, noise), noise

    def _grown(self, start: frozenset[ir.Node], noise: NoiseModel) -> frozenset[ir.Node] | None:
        """What another search found, and the few nodes more that these samples need; None where few are not enough."""
        ladder, keep = noise.ladder(start), start
        for _ in range(GROWTHS):
            if not self.judge.affords(Untried.SETS, LEAST_SETS + 1):
                return None
            measured, left = self.measure(keep), noise.left(keep)
            if measured.unseen_bound <= self.target_ratio:
                return keep
            if not math.isfinite(measured.unseen_bound) or left <= 0:
                return None
            count = ladder.reach(left * (0.9 * self.target_ratio / measured.unseen_bound) ** 2)
            larger = start | ladder.nodes(count)
            if larger <= keep or len(larger) > max(2 * len(start), len(start) + WORTH_RELAXING):
                return None
            self.notify(f"trying {counted(len(larger), 'FP32 node')} ({len(larger) - len(start)} more)")
            keep = larger
        return keep if self.measure(keep).unseen_bound <= self.target_ratio else None

    def _told_by_one(self, keep: frozenset[ir.Node], fp16: Measured) -> float:
        """The bound that the worst sample alone lets expect, where plain FP16 tells how the others stand to it."""
        if len(keep) < WORTH_RELAXING or not math.isfinite(fp16.ratio) or len(fp16.ratios) < 2:
            return math.inf
        return self.sets.measure_one(keep, worst_first(fp16.ratios)[0]) * fp16.unseen_bound / fp16.ratio

    def _relax(self, keep: frozenset[ir.Node], ladder: Ladder, bound: float, noise: NoiseModel) -> frozenset[ir.Node]:
        """More was removed than needed: take what the model, corrected by the measurements, thinks is enough."""
        low, high = max(ladder.reach(math.inf) - 1, 0), ladder.reach(noise.left(keep))
        for _ in range(RELAXATIONS):
            if (
                self.judge.spent
                or bound > 0.7 * self.target_ratio
                or len(keep) < WORTH_RELAXING
                or high - low <= max(1, high // 8)
                or not self.judge.affords(Untried.SETS)
            ):
                break
            goal = noise.left(keep) * (0.9 * self.target_ratio / bound) ** 2 if bound > 0 else math.inf
            count = ladder.reach(goal)
            if not low < count < high:  # the model is no help here: halve what is left, small sets first
                count = max(math.isqrt(max(low, 1) * high), low + 1)
            fewer = trim(noise.pieces, ladder.nodes(count), noise.cost, ladder.left(count))
            if len(fewer) >= len(keep):
                break
            self.notify(f"trying {counted(len(fewer), 'FP32 node')}")
            if self.sets.tried(fewer, self.target_ratio).bound <= self.target_ratio:
                keep, bound, high = fewer, self.measure(fewer).unseen_bound, count
            else:
                low = max(low, count)
        return keep

    def _for_missed(self, keep: frozenset[ir.Node], fp16: Measured) -> frozenset[ir.Node]:
        """Without the nodes that serve only outputs which plain FP16 keeps, where that is measured to be enough."""
        lost = missed(fp16, self.judge.floats, self.target_ratio)
        fewer = serving(lost, keep, self.sites.model, self.stepper)
        if not fewer or fewer == keep or not self.judge.affords(Untried.SETS):
            return keep
        self.notify(f"trying {counted(len(fewer), 'FP32 node')} (for the outputs that are missed)")
        return fewer if self.sets.tried(fewer, self.target_ratio).bound <= self.target_ratio else keep

    def _first_goal(self, fp16: Measured, ladder: Ladder, noise: NoiseModel) -> float:
        """The squared error to leave, in the noise model's units, from the all-FP16 error where that is finite."""
        if math.isfinite(fp16.unseen_bound) and ladder.start > 0 and not noise.fatal:
            return ladder.start * (0.9 * self.target_ratio / fp16.unseen_bound) ** 2
        return (
            0.9
            * self.target_ratio
            * min(relative_bounds(self.sites, self.judge.question.tolerance).values(), default=0.01)
        ) ** 2

    def _contradicts(
        self, now: Measured, keep: frozenset[ir.Node], last: Measured, known: frozenset[ir.Node], noise: NoiseModel
    ) -> bool:
        """Nodes were added that should have helped much, and the error hardly fell: noise the model did not see."""
        if not math.isfinite(now.ratio):
            return True
        return math.isfinite(last.ratio) and noise.left(known) > 9 * noise.left(keep) and now.ratio > 0.7 * last.ratio

    def _lost(self, keep: frozenset[ir.Node], measured: Measured, noise: NoiseModel) -> NoiseModel | None:
        """What overflows in a sample that was not walked, as plain FP16 seemed to bear it: a weight that is clamped, or
        a norm, hides that what is behind it would overflow. None where that is not it."""
        index = worst_first(measured.ratios)[0]
        if math.isfinite(measured.ratios[index]) or not self.judge.affords(Untried.SETS, LEAST_SETS, 1.0):
            return None
        pieces = lost_in(self.sets, index, self.notify)
        new = [piece for piece in pieces if not piece.needs <= keep]
        return noise.with_lost(new) if new else None

    def find_hidden(
        self, keep: frozenset[ir.Node], ladder: Ladder, measured: Measured, noise: NoiseModel
    ) -> Noise | None:
        """Find by halving, on the worst sample, which further nodes bring the error down, and make them a piece."""
        index = worst_first(measured.ratios)[0]
        top = measured.ratios[index]
        enough = 0.5 * top if math.isfinite(top) else 1e30

        def ratio(nodes: frozenset[ir.Node]) -> float:
            return self.sets.measure_one(nodes, index)

        rest = [n for step in ladder.steps for n in step.added if n not in keep]
        taken = keep | set(rest) | self.sites.forced
        rest += [s.node for s in self.sites.free if s.node not in taken]
        trials = (len(rest).bit_length() + 5) * (1 + len(self.judge.also))
        if not rest or not self.judge.affords(Untried.SETS, LEAST_SETS, trials) or ratio(keep | set(rest)) > enough:
            return None
        self.notify("looking for a culprit that the noise model missed")
        first, last = 0, len(rest)  # rest[:last] is enough, rest[:first] is not
        while last - first > 1:
            middle = (first + last) // 2
            if ratio(keep | set(rest[:middle])) <= enough:
                last = middle
            else:
                first = middle
        found = {rest[last - 1]}
        within = keep | set(rest[:last])
        for _ in range(4):  # what it needs beside it: its neighbours, then theirs
            if ratio(keep | found) <= enough:
                return Noise(frozenset(found), noise.left(frozenset()) * 4, True)
            found |= {n for f in found for n in (*f.predecessors(), *f.successors()) if n in within}
        return Noise(within, noise.left(frozenset()) * 4, True)

    def _bisect(self, ladder: Ladder, low: int, everything: frozenset[ir.Node]) -> frozenset[ir.Node]:
        """The prediction did not lead there: find by halving the shortest part of the ladder that is enough."""
        high = len(ladder.steps)
        best = ladder.nodes(high)
        self.notify(f"trying {counted(len(best), 'FP32 node')} (all that the noise model names)")
        if self.measure(best).unseen_bound > self.target_ratio:  # whatever runs are left: FP32 is the least answer
            if self.measure(everything).unseen_bound > self.target_ratio:
                return everything if self.measure(everything).ratio <= self.measure(best).ratio else best
            return everything
        for halving in range(len(ladder.steps)):
            if high - low <= max(1, len(ladder.steps) // 64) or (halving >= LEAST_HALVINGS and self.judge.spent):
                break
            if not self.judge.affords(Untried.SETS):
                break
            middle = (low + high) // 2
            nodes = ladder.nodes(middle)
            self.notify(f"trying {counted(len(nodes), 'FP32 node')} (halving)")
            if self.sets.tried(nodes, self.target_ratio).bound <= self.target_ratio:
                high, best = middle, nodes
            else:
                low = middle
        return best

    def _for_choices(self, keep: frozenset[ir.Node], noise: NoiseModel) -> frozenset[ir.Node]:
        """Where most nodes stay in FP32: what choices depend on, of which no derivative tells, and few nodes more."""
        if 2 * len(keep) < len(self.sites.free) or self.measure(keep).unseen_bound > self.target_ratio:
            return keep
        fewer = keep & (deciding(keep, self.sites.model, self.stepper) | noise.fatal)
        grown = self._grown(fewer, noise) if fewer and len(fewer) < len(keep) else None
        return keep if grown is None or len(grown) > len(keep) else grown
