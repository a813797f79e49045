"""Finds the FP32 nodes: nothing if nothing is needed; else what the noise model ranks first, measured and pruned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from halfwise.engine.stepper import Stepper
from halfwise.formats import Format
from halfwise.precision import Assignment
from halfwise.sites import Sites
from halfwise.solve.choose import Ladder, build_ladder, trim
from halfwise.solve.cost import node_costs
from halfwise.solve.journal import Journal, digest
from halfwise.solve.judge import Judge, Measured
from halfwise.solve.noise import Noise, noise_pieces
from halfwise.solve.places import refuse_share, refuse_unsteady
from halfwise.solve.putback import put_back
from halfwise.solve.sensitivity import Sensitivity, measure_sensitivity

__all__ = ["Kept", "Point", "Search", "Solution"]

Notify = Callable[[str], None]

SENSITIVITY_SAMPLES = 2  # walked node by node, the worst first
TRIES = 8  # of a set of nodes before falling back to all that the ladder names
MANY = 64  # FP32 nodes from which proving each one's need alone costs more than it is worth
PROOF_RUNS = (64.0, 8.0)  # model runs that may be spent on putting nodes back one at a time: of few nodes, of many
RELAXATIONS = 5  # smaller sets to try where the first that met left room
WORTH_RELAXING = 8  # nodes; fewer are put back one by one at once
BATCH = 48  # nodes put back side by side in one walk


@dataclass(frozen=True)
class Kept:
    """Why a node stays in FP32. `without` is the load measured with the node alone put back; None if not measured."""

    node: ir.Node
    why: str
    without: float | None


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
    """One search over one model. `aim` is the load to reach on the search samples, margin included."""

    sites: Sites
    judge: Judge
    stepper: Stepper
    journal: Journal = field(default_factory=Journal)
    io: Format = Format.FP32
    aim: float = 1.0
    label: str = ""  # of the model, where the journal holds measurements of several
    notify: Notify = lambda _: None

    def __post_init__(self) -> None:
        self._pieces: tuple[Noise, ...] | None = None
        self._cost: dict[ir.Node, float] = {}
        self._fatal: frozenset[ir.Node] = frozenset()
        self._measured: dict[frozenset[ir.Node], Measured] = {}

    # -- the way to an answer ---------------------------------------------------------------------------------------

    def run(self, *, prune: bool = True, start: frozenset[ir.Node] = frozenset()) -> Solution:
        """Without pruning the set keeps the tolerance, but more may be in it than is needed. `start` is tried first."""
        self.notify("the FP32 model and the all-FP16 model")
        nothing: frozenset[ir.Node] = frozenset()
        fp16 = self.measure(nothing)
        if fp16.aim <= self.aim:
            return Solution(nothing, (), fp16, fp16)
        refuse_unsteady(self.judge, fp16.uncompared)
        self._look(fp16)
        keep = start if start and self.measure(start).aim <= self.aim else self._reach(fp16)
        refuse_share(fp16.uncompared, len(keep), len(self.sites.free))
        found = self.measure(keep)
        if found.aim > self.aim and not found.met:
            return Solution(keep, tuple(Kept(n, "all that could help is kept", None) for n in keep), fp16, found)
        if not prune:
            return Solution(keep, tuple(self._kept(node, None) for node in keep), fp16, found)
        keep, kept = self._prune(keep)
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
            load = self.measure(nodes).load
            cost = ladder.steps[count - 1].cost if count else 0.0
            found.append(Point(len(nodes), cost, math.sqrt(ladder.left(count)), load))
        return tuple(found)

    def tried(self) -> tuple[Point, ...]:
        """The sets that were measured on the way to the answer: what the trade-off shows without another run."""
        points = []
        for keep, measured in self._measured.items():
            predicted = math.sqrt(self._left(keep)) if self._pieces is not None else 0.0
            points.append(Point(len(keep), self.cost(keep), predicted, measured.load))
        return tuple(sorted(points, key=lambda point: (point.nodes, point.cost)))

    def measure(self, keep: frozenset[ir.Node]) -> Measured:
        """The error with just these nodes in FP32; each set is run once."""
        if keep not in self._measured:
            key = digest("measure", self.label, self.io, self.sites.fmt, *sorted(n.name or "" for n in keep))
            known = self.journal.get(key)
            if known is not None:
                self.judge.runs += self.journal.runs(key)
                loads = tuple(float(x) for x in known["loads"])
                self._measured[keep] = Measured(
                    loads, question=self.judge.question, uncompared=tuple(known["uncompared"])
                )
            else:
                before = self.judge.runs
                found = self._measured[keep] = self.judge.measure(self.assignment(keep))
                entry = {"loads": [str(x) for x in found.loads], "uncompared": list(found.uncompared)}
                self.journal.put(key, {**entry, "runs": self.judge.runs - before})
        return self._measured[keep]

    def cost(self, keep: frozenset[ir.Node]) -> float:
        """What keeping these nodes costs; before the noise was looked at, by their number."""
        return sum(self._cost.get(node, 1.0) for node in keep)

    def assignment(self, keep: frozenset[ir.Node]) -> Assignment:
        return Assignment.all_narrow(self.sites, keep, self.io)

    @property
    def pieces(self) -> tuple[Noise, ...]:
        assert self._pieces is not None
        return self._pieces

    # -- looking at the noise ---------------------------------------------------------------------------------------

    def _look(self, fp16: Measured) -> None:
        """Walk the worst samples node by node, and model the noise from what is seen."""
        if self._pieces is not None:
            return
        order = _worst_first(fp16.loads)[:SENSITIVITY_SAMPLES]
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
            runs = self._stepped(before)
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

    def _stepped(self, before: float) -> float:
        runs = (self.stepper.executed - before) / max(len(self.sites.all), 1) / max(len(self.judge.feeds), 1)
        self.judge.runs += runs
        return runs

    # -- reaching the tolerance -------------------------------------------------------------------------------------

    def _reach(self, fp16: Measured) -> frozenset[ir.Node]:
        """Sets from the ladder, larger as measured, until one is within the aim."""
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
            if measured.aim <= self.aim:
                return self._relax(keep, ladder, measured)
            if self._contradicts(measured, keep, fp16) and (hidden := self._find_hidden(keep, ladder, measured)):
                self._pieces = (*self.pieces, hidden)
                ladder, low = build_ladder(self.pieces, self._cost), 0
                continue
            left = self._left(keep)
            if math.isfinite(measured.aim) and left > 0:
                goal = min(goal / 1.5, left * (0.9 * self.aim / measured.aim) ** 2)
            else:
                goal /= 4
            low = count
        return self._bisect(ladder, min(low, len(ladder.steps) - 1), everything)

    def _relax(self, keep: frozenset[ir.Node], ladder: Ladder, measured: Measured) -> frozenset[ir.Node]:
        """More was removed than needed: take what the model, corrected by the measurements, thinks is enough."""
        low, high = max(ladder.reach(math.inf) - 1, 0), ladder.reach(self._left(keep))
        for _ in range(RELAXATIONS):
            if measured.aim > 0.7 * self.aim or len(keep) < WORTH_RELAXING or high - low <= max(1, high // 8):
                break
            goal = self._left(keep) * (0.9 * self.aim / measured.aim) ** 2 if measured.aim > 0 else math.inf
            count = ladder.reach(goal)
            if not low < count < high:  # the model is no help here: halve what is left, small sets first
                count = max(math.isqrt(max(low, 1) * high), low + 1)
            fewer = trim(self.pieces, ladder.nodes(count), self._cost, ladder.left(count))
            if len(fewer) >= len(keep):
                break
            self.notify(f"{len(fewer)} FP32 nodes (fewer may do)")
            found = self.measure(fewer)
            if found.aim <= self.aim:
                keep, measured, high = fewer, found, count
            else:
                low = max(low, count)
        return keep

    def _first_goal(self, fp16: Measured, ladder: Ladder) -> float:
        """The squared error to leave, in the noise model's units, from the all-FP16 error where that is finite."""
        if math.isfinite(fp16.aim) and ladder.start > 0 and not self._fatal:
            return ladder.start * (0.9 * self.aim / fp16.aim) ** 2
        return (0.9 * self.aim * min(self._relative_bounds().values(), default=0.01)) ** 2

    def _left(self, keep: frozenset[ir.Node]) -> float:
        return sum(piece.energy for piece in self.pieces if not piece.needs <= keep)

    def _contradicts(self, measured: Measured, keep: frozenset[ir.Node], fp16: Measured) -> bool:
        """Nodes were added that should have helped much, and the error hardly fell: noise the model did not see."""
        before, after = self._left(frozenset()), self._left(keep)
        if not math.isfinite(measured.load):
            return True
        return math.isfinite(fp16.load) and before > 9 * after and measured.load > 0.7 * fp16.load

    def _find_hidden(self, keep: frozenset[ir.Node], ladder: Ladder, measured: Measured) -> Noise | None:
        """Find by halving, on the worst sample, which further nodes bring the error down, and make them a piece."""
        index = _worst_first(measured.loads)[0]
        top = measured.loads[index]
        enough = 0.5 * top if math.isfinite(top) else 1e30

        def load(nodes: frozenset[ir.Node]) -> float:
            return self._measure_one(nodes, index)

        rest = [n for step in ladder.steps for n in step.added if n not in keep]
        taken = keep | set(rest) | self.sites.forced
        rest += [s.node for s in self.sites.free if s.node not in taken]
        if not rest or load(keep | set(rest)) > enough:
            return None
        self.notify("looking for a culprit that the noise model did not name")
        first, last = 0, len(rest)  # rest[:last] is enough, rest[:first] is not
        while last - first > 1:
            middle = (first + last) // 2
            if load(keep | set(rest[:middle])) <= enough:
                last = middle
            else:
                first = middle
        found = {rest[last - 1]}
        within = keep | set(rest[:last])
        for _ in range(4):  # what it needs beside it: its neighbours, then theirs
            if load(frozenset(found)) <= enough:
                return Noise(frozenset(found), self._left(frozenset()) * 4, True)
            found |= {n for f in found for n in (*f.predecessors(), *f.successors()) if n in within}
        return Noise(within, self._left(frozenset()) * 4, True)

    def _measure_one(self, keep: frozenset[ir.Node], index: int) -> float:
        key = digest("measure-one", self.label, self.io, self.sites.fmt, index, *sorted(n.name or "" for n in keep))
        known = self.journal.get(key)
        if known is not None:
            self.judge.runs += self.journal.runs(key)
            return float(known["load"])
        before = self.judge.runs
        load = self.judge.measure_one(self.assignment(keep), index)
        self.journal.put(key, {"load": str(load), "runs": self.judge.runs - before})
        return load

    def _bisect(self, ladder: Ladder, low: int, everything: frozenset[ir.Node]) -> frozenset[ir.Node]:
        """The prediction did not lead there: find by halving the shortest part of the ladder that is enough."""
        high = len(ladder.steps)
        best = ladder.nodes(high)
        self.notify(f"{len(best)} FP32 nodes (all that the noise model names)")
        if self.measure(best).aim > self.aim:
            if self.measure(everything).aim > self.aim:
                return everything if self.measure(everything).load <= self.measure(best).load else best
            return everything
        while high - low > max(1, len(ladder.steps) // 64):
            middle = (low + high) // 2
            nodes = ladder.nodes(middle)
            self.notify(f"{len(nodes)} FP32 nodes (halving)")
            if self.measure(nodes).aim <= self.aim:
                high, best = middle, nodes
            else:
                low = middle
        return best

    # -- pruning ----------------------------------------------------------------------------------------------------

    def _prune(self, keep: frozenset[ir.Node]) -> tuple[frozenset[ir.Node], tuple[Kept, ...]]:
        """Drop what is not needed until putting back any one node breaks the tolerance, or its reason stands."""
        budget = self.judge.runs + PROOF_RUNS[len(keep) > MANY]
        loads: dict[ir.Node, float] = {}  # the worst load seen with each node alone put back
        seen: dict[ir.Node, int] = {}  # on how many samples, the worst first
        refused: set[ir.Node] = set()
        while True:
            order = _worst_first(self.measure(keep).loads)
            todo = [n for n in keep if loads.get(n, 0.0) <= 1.0 and seen.get(n, 0) < len(order)]
            if not todo or self.judge.runs >= budget:
                break
            turn = min(seen.get(n, 0) for n in todo)
            batch = sorted((n for n in todo if seen.get(n, 0) == turn), key=self._least_likely_needed)[:BATCH]
            self.notify(f"putting back each of {len(batch)} of {len(keep)} FP32 nodes (input {turn + 1})")
            for node, load in self._put_back(keep, batch, order[turn]).items():
                loads[node] = max(load, loads.get(node, 0.0))
                seen[node] = turn + 1
            if any(seen.get(n, 0) == turn for n in todo):
                continue  # more batches on this sample
            base = self.measure(keep)
            room = self.aim * base.load / base.aim if base.aim > 0 else self.aim
            droppable = [n for n in keep if n in loads and loads[n] <= room and n not in refused]
            smaller = self._drop(keep, droppable, loads)
            if smaller == keep:
                refused.update(n for n in droppable if seen[n] >= len(order))
                continue
            keep = smaller
            for node in keep:  # with fewer nodes kept, what did not break may break now
                if loads.get(node, 0.0) <= 1.0:
                    loads.pop(node, None)
                    seen.pop(node, None)
        return keep, tuple(self._kept(node, loads.get(node)) for node in sorted(keep, key=self._index))

    def _least_likely_needed(self, node: ir.Node) -> tuple[bool, int]:
        return node in self._fatal, self._index(node)

    def _drop(
        self, keep: frozenset[ir.Node], droppable: Sequence[ir.Node], loads: dict[ir.Node, float]
    ) -> frozenset[ir.Node]:
        """The largest part of the droppable nodes that may go together; squared errors add, then it is measured."""
        base = self.measure(keep)
        order = sorted(droppable, key=lambda n: (loads[n] / self._cost.get(n, 1.0), n.name or ""))
        room = (self.aim * base.load / base.aim) ** 2 - base.load**2 if base.aim > 0 else self.aim**2
        going: list[ir.Node] = []
        for node in order:
            grows = max(loads[node] ** 2 - base.load**2, 0.0)
            if grows <= room or not going:
                going.append(node)
                room -= grows
        while going:
            smaller = keep - set(going)
            self.notify(f"{len(smaller)} FP32 nodes (without {len(going)} more)")
            if self.measure(smaller).aim <= self.aim:
                return smaller
            going = going[: len(going) // 2]
        return keep

    def _put_back(self, keep: frozenset[ir.Node], nodes: Sequence[ir.Node], index: int) -> dict[ir.Node, float]:
        """The load on one sample with each node alone put back."""
        names = sorted(n.name or "" for n in keep)
        key = digest("put-back", self.label, self.io, self.sites.fmt, index, *names, "-", *(n.name for n in nodes))
        known = self.journal.get(key)
        if known is not None:
            self.judge.runs += self.journal.runs(key)
            return {node: float(load) for node, load in zip(nodes, known["loads"], strict=True)}
        main = self.sites.model.graph
        before, reference = self.stepper.executed, self.judge.references[index]
        loads = put_back(
            self.stepper,
            self.assignment(keep),
            [n for n in nodes if n.graph is main],
            self.judge.feeds[index],
            lambda outputs: self.judge.load_of(reference, outputs)[0],
        )
        runs = self._stepped(before)
        for node in nodes:
            if node.graph is not main:  # inside a subgraph: only the whole can be run
                loads[node] = self._measure_one(keep - {node}, index)
        self.journal.put(key, {"loads": [str(loads[n]) for n in nodes], "runs": runs})
        return loads

    def _kept(self, node: ir.Node, without: float | None) -> Kept:
        if without is None:
            why = "overflow" if node in self._fatal else "not measured alone"
        elif without > 1.0:
            why = "overflow" if node in self._fatal else "rounding"
        else:
            why = "margin"
        return Kept(node, why, without)

    def _index(self, node: ir.Node) -> int:
        return self.sites.of[node].index


def _worst_first(loads: Sequence[float]) -> list[int]:
    return sorted(range(len(loads)), key=lambda i: (-loads[i], i))
