"""Finds the FP32 nodes: nothing if nothing is needed; else what the noise model ranks first, measured and pruned."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.reasons import Reason
from halfwise.emulation.stepper import Stepper
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.choose import Ladder, build_ladder, trim
from halfwise.search.cost import node_costs
from halfwise.search.journal import Journal, digest
from halfwise.search.judge import Judge, Measured
from halfwise.search.noise import Noise, noise_pieces
from halfwise.search.places import refuse_share, refuse_unsteady
from halfwise.search.prune import Kept, Pruning, kept_node
from halfwise.search.sensitivity import Sensitivity, measure_sensitivity
from halfwise.search.sets import Sets, worst_first

__all__ = ["Kept", "Point", "Search", "Solution"]

Notify = Callable[[str], None]

SENSITIVITY_SAMPLES = 2  # walked node by node, the worst first
TRIES = 8  # of a set of nodes before falling back to all that the ladder names
RELAXATIONS = 5  # smaller sets to try where the first that met left room
WORTH_RELAXING = 8  # nodes; fewer are put back one by one at once


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
    curve: tuple[Point, ...] = ()


@dataclass
class Search:
    """One search over one model. `target_ratio` is the ratio to reach on the search samples, margin included."""

    sites: Sites
    judge: Judge
    stepper: Stepper
    journal: Journal = field(default_factory=Journal)
    io: Format = Format.FP32
    target_ratio: float = 1.0
    label: str = ""  # of the model, where the journal holds measurements of several
    notify: Notify = lambda _: None

    def __post_init__(self) -> None:
        self._pieces: tuple[Noise, ...] | None = None
        self._cost: dict[ir.Node, float] = {}
        self._fatal: frozenset[ir.Node] = frozenset()
        self._sets = Sets(self.sites, self.judge, self.stepper, self.journal, self.io, self.label)

    # -- the way to an answer ---------------------------------------------------------------------------------------

    def run(self, *, prune: bool = True, start: frozenset[ir.Node] = frozenset()) -> Solution:
        """Without pruning the set keeps the tolerance, but more may be in it than is needed. `start` is tried first."""
        self.notify("the FP32 model and the all-FP16 model")
        nothing: frozenset[ir.Node] = frozenset()
        fp16 = self.measure(nothing)
        if fp16.unseen_bound <= self.target_ratio:
            return Solution(nothing, (), fp16, fp16)
        refuse_unsteady(self.judge, fp16.uncompared)
        self._look(fp16)
        keep = start if start and self.measure(start).unseen_bound <= self.target_ratio else self._reach(fp16)
        refuse_share(fp16.uncompared, len(keep), len(self.sites.free))
        found = self.measure(keep)
        if found.unseen_bound > self.target_ratio and not found.met:
            return Solution(keep, tuple(Kept(n, Reason.EXHAUSTED, None) for n in keep), fp16, found)
        if not prune:
            return Solution(keep, tuple(kept_node(node, None, self._fatal) for node in keep), fp16, found)
        keep, kept = Pruning(self._sets, self.target_ratio, self._cost, self._fatal, self.notify).run(keep)
        return Solution(keep, kept, fp16, self.measure(keep))

    def curve(self, points: int = 8) -> tuple[Point, ...]:
        """Error against FP32 cost, from nothing kept to all that matters: predicted along the way, measured at some."""
        fp16 = self.measure(frozenset())
        self._look(fp16)
        ladder = build_ladder(self.pieces, self._cost)
        steps = len(ladder.steps)
        counts = sorted({0, steps, *(round(steps ** (i / (points - 1))) for i in range(points))})
        found = []
        for count in counts:
            nodes = ladder.nodes(count)
            self.notify(f"the trade-off at {len(nodes)} FP32 nodes")
            ratio = self.measure(nodes).ratio
            cost = ladder.steps[count - 1].cost if count else 0.0
            found.append(Point(len(nodes), cost, math.sqrt(ladder.left(count)), ratio))
        return tuple(found)

    def measure(self, keep: frozenset[ir.Node]) -> Measured:
        """The error with just these nodes in FP32; each set is run once."""
        return self._sets.measure(keep)

    def cost(self, keep: frozenset[ir.Node]) -> float:
        """What keeping these nodes costs; before the noise was looked at, by their number."""
        return sum(self._cost.get(node, 1.0) for node in keep)

    def assignment(self, keep: frozenset[ir.Node]) -> Assignment:
        return self._sets.assignment(keep)

    @property
    def pieces(self) -> tuple[Noise, ...]:
        assert self._pieces is not None
        return self._pieces

    # -- looking at the noise ---------------------------------------------------------------------------------------

    def _look(self, fp16: Measured) -> None:
        """Walk the worst samples node by node, and model the noise from what is seen."""
        if self._pieces is not None:
            return
        order = worst_first(fp16.ratios)[:SENSITIVITY_SAMPLES]
        key = digest("pieces", self.label, self.io, self.sites.fmt, *order)
        known = self.journal.get(key)
        by_name = self.sites.model.node_by_name
        if known is not None:
            self.judge.runs += self.journal.runs(key)
            self._pieces = tuple(
                Noise(frozenset(by_name[n] for n in names), energy, fatal) for names, energy, fatal in known["pieces"]
            )
            self._cost = {by_name[name]: cost for name, cost in known["cost"].items()}
        else:
            measured = Sensitivity()
            before = self.stepper.executed
            for index in order:
                self.notify(f"what each rounding does (sample {index + 1} of {len(self.judge.feeds)})")
                measure_sensitivity(
                    self.stepper, self.sites, self.judge.feeds[index], measured, weights=self._weights()
                )
            runs = self._sets.stepped(before)
            self._pieces = noise_pieces(self.sites, measured)
            self._cost = node_costs(self.sites, measured.size)
            entry = [[sorted(n.name or "" for n in p.needs), p.energy, p.fatal] for p in self._pieces]
            cost = {n.name or "": c for n, c in self._cost.items()}
            self.journal.put(key, {"pieces": entry, "cost": cost, "runs": runs})
        if self.sites.forced:  # what a forced node rounds stays, whatever else is kept
            self._pieces = tuple(piece for piece in self.pieces if not piece.needs & self.sites.forced)
        self._fatal = frozenset(node for piece in self.pieces if piece.fatal for node in piece.needs)

    def _weights(self) -> dict[str, float]:
        """How much more or less than under the tightest bound an output's relative error counts."""
        bounds = self._relative_bounds()
        tightest = min(bounds.values(), default=1.0)
        return {name: tightest / bound for name, bound in bounds.items()}

    def _relative_bounds(self) -> dict[str, float]:
        stated = {b.output: b.value for b in self.judge.question.tolerance.bounds if b.metric == "rel_l2"}
        every = stated.get("*")
        names = self.sites.model.output_names
        return {n: bound for n in names if (bound := stated.get(n, every))}

    # -- reaching the tolerance -------------------------------------------------------------------------------------

    def _reach(self, fp16: Measured) -> frozenset[ir.Node]:
        """Sets from the ladder, larger as measured, until one is within the target."""
        everything = frozenset(site.node for site in self.sites.free) - self.sites.forced
        ladder = build_ladder(self.pieces, self._cost)
        if not ladder.steps:
            return everything
        goal = self._first_goal(fp16, ladder)
        low = 0  # steps known not to be enough
        for attempt in range(TRIES):
            count = max(ladder.reach(goal), low + 1)
            if count > len(ladder.steps):
                break
            keep = trim(self.pieces, ladder.nodes(count), self._cost, max(goal, ladder.left(count)))
            self.notify(f"{len(keep)} FP32 nodes (try {attempt + 1})")
            measured = self.measure(keep)
            if measured.unseen_bound <= self.target_ratio:
                return self._relax(keep, ladder, measured)
            if self._contradicts(measured, keep, fp16) and (hidden := self._find_hidden(keep, ladder, measured)):
                self._pieces = (*self.pieces, hidden)
                ladder, low = build_ladder(self.pieces, self._cost), 0
                continue
            left = self._left(keep)
            if math.isfinite(measured.unseen_bound) and left > 0:
                goal = min(goal / 1.5, left * (0.9 * self.target_ratio / measured.unseen_bound) ** 2)
            else:
                goal /= 4
            low = count
        return self._bisect(ladder, min(low, len(ladder.steps) - 1), everything)

    def _relax(self, keep: frozenset[ir.Node], ladder: Ladder, measured: Measured) -> frozenset[ir.Node]:
        """More was removed than needed: take what the model, corrected by the measurements, thinks is enough."""
        low, high = max(ladder.reach(math.inf) - 1, 0), ladder.reach(self._left(keep))
        for _ in range(RELAXATIONS):
            if (
                measured.unseen_bound > 0.7 * self.target_ratio
                or len(keep) < WORTH_RELAXING
                or high - low <= max(1, high // 8)
            ):
                break
            goal = (
                self._left(keep) * (0.9 * self.target_ratio / measured.unseen_bound) ** 2
                if measured.unseen_bound > 0
                else math.inf
            )
            count = ladder.reach(goal)
            if not low < count < high:  # the model is no help here: halve what is left, small sets first
                count = max(math.isqrt(max(low, 1) * high), low + 1)
            fewer = trim(self.pieces, ladder.nodes(count), self._cost, ladder.left(count))
            if len(fewer) >= len(keep):
                break
            self.notify(f"{len(fewer)} FP32 nodes (fewer may do)")
            found = self.measure(fewer)
            if found.unseen_bound <= self.target_ratio:
                keep, measured, high = fewer, found, count
            else:
                low = max(low, count)
        return keep

    def _first_goal(self, fp16: Measured, ladder: Ladder) -> float:
        """The squared error to leave, in the noise model's units, from the all-FP16 error where that is finite."""
        if math.isfinite(fp16.unseen_bound) and ladder.start > 0 and not self._fatal:
            return ladder.start * (0.9 * self.target_ratio / fp16.unseen_bound) ** 2
        return (0.9 * self.target_ratio * min(self._relative_bounds().values(), default=0.01)) ** 2

    def _left(self, keep: frozenset[ir.Node]) -> float:
        return sum(piece.energy for piece in self.pieces if not piece.needs <= keep)

    def _contradicts(self, measured: Measured, keep: frozenset[ir.Node], fp16: Measured) -> bool:
        """Nodes were added that should have helped much, and the error hardly fell: noise the model did not see."""
        before, after = self._left(frozenset()), self._left(keep)
        if not math.isfinite(measured.ratio):
            return True
        return math.isfinite(fp16.ratio) and before > 9 * after and measured.ratio > 0.7 * fp16.ratio

    def _find_hidden(self, keep: frozenset[ir.Node], ladder: Ladder, measured: Measured) -> Noise | None:
        """Find by halving, on the worst sample, which further nodes bring the error down, and make them a piece."""
        index = worst_first(measured.ratios)[0]
        top = measured.ratios[index]
        enough = 0.5 * top if math.isfinite(top) else 1e30

        def ratio(nodes: frozenset[ir.Node]) -> float:
            return self._sets.measure_one(nodes, index)

        rest = [n for step in ladder.steps for n in step.added if n not in keep]
        taken = keep | set(rest) | self.sites.forced
        rest += [s.node for s in self.sites.free if s.node not in taken]
        if not rest or ratio(keep | set(rest)) > enough:
            return None
        self.notify("looking for a culprit that the noise model did not name")
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
            if ratio(frozenset(found)) <= enough:
                return Noise(frozenset(found), self._left(frozenset()) * 4, True)
            found |= {n for f in found for n in (*f.predecessors(), *f.successors()) if n in within}
        return Noise(within, self._left(frozenset()) * 4, True)

    def _bisect(self, ladder: Ladder, low: int, everything: frozenset[ir.Node]) -> frozenset[ir.Node]:
        """The prediction did not lead there: find by halving the shortest part of the ladder that is enough."""
        high = len(ladder.steps)
        best = ladder.nodes(high)
        self.notify(f"{len(best)} FP32 nodes (all that the noise model names)")
        if self.measure(best).unseen_bound > self.target_ratio:
            if self.measure(everything).unseen_bound > self.target_ratio:
                return everything if self.measure(everything).ratio <= self.measure(best).ratio else best
            return everything
        while high - low > max(1, len(ladder.steps) // 64):
            middle = (low + high) // 2
            nodes = ladder.nodes(middle)
            self.notify(f"{len(nodes)} FP32 nodes (halving)")
            if self.measure(nodes).unseen_bound <= self.target_ratio:
                high, best = middle, nodes
            else:
                low = middle
        return best
