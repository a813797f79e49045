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
from halfwise.solve.putback import put_back
from halfwise.solve.sensitivity import Sensitivity, measure_sensitivity

__all__ = ["Kept", "Point", "Search", "Solution"]

Notify = Callable[[str], None]

SENSITIVITY_SAMPLES = 2  # walked node by node, the worst first
TRIES = 8  # of a set of nodes before falling back to all that the ladder names
PROOF_RUNS = 8.0  # model runs that may be spent on putting nodes back one at a time
CLEAR_BREAK = 1.15  # a put-back load from which no later change to the set brings it back within 1


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
    """One search over one model. `aim` is the load to reach on the search samples, spread included."""

    sites: Sites
    judge: Judge
    stepper: Stepper
    journal: Journal = field(default_factory=Journal)
    io: Format = Format.FP32
    aim: float = 1.0
    notify: Notify = lambda _: None

    def __post_init__(self) -> None:
        self._pieces: tuple[Noise, ...] | None = None
        self._cost: dict[ir.Node, float] = {}
        self._fatal: frozenset[ir.Node] = frozenset()
        self._measured: dict[frozenset[ir.Node], Measured] = {}

    # -- the way to an answer ---------------------------------------------------------------------------------------

    def run(self) -> Solution:
        self.notify("the FP32 model and the all-FP16 model")
        nothing: frozenset[ir.Node] = frozenset()
        fp16 = self.measure(nothing)
        if fp16.aim <= self.aim:
            return Solution(nothing, (), fp16, fp16)
        self._look(fp16)
        keep = self._reach(fp16)
        found = self.measure(keep)
        if found.aim > self.aim and not found.met:
            return Solution(keep, tuple(Kept(n, "all that could help is kept", None) for n in keep), fp16, found)
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

    def measure(self, keep: frozenset[ir.Node]) -> Measured:
        """The error with just these nodes in FP32; each set is run once."""
        if keep not in self._measured:
            key = digest("measure", self.io, self.sites.fmt, *sorted(n.name or "" for n in keep))
            known = self.journal.get(key)
            if known is not None:
                self.judge.runs += known["runs"]
                self._measured[keep] = Measured(tuple(float(x) for x in known["loads"]))
            else:
                before = self.judge.runs
                self._measured[keep] = self.judge.measure(self.assignment(keep))
                loads = [str(x) for x in self._measured[keep].loads]
                self.journal.put(key, {"loads": loads, "runs": self.judge.runs - before})
        return self._measured[keep]

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
        key = digest("pieces", self.io, self.sites.fmt, *order)
        known = self.journal.get(key)
        by_name = self.sites.model.node_by_name
        if known is not None:
            self.judge.runs += known["runs"]
            self._pieces = tuple(
                Noise(frozenset(by_name[n] for n in names), energy, fatal) for names, energy, fatal in known["pieces"]
            )
            self._cost = {by_name[name]: cost for name, cost in known["cost"].items()}
        else:
            measured = Sensitivity()
            before = self.stepper.executed
            for index in order:
                self.notify(f"what each rounding does (sample {index + 1} of {len(self.judge.feeds)})")
                measure_sensitivity(self.stepper, self.sites, self.judge.feeds[index], measured)
            runs = self._stepped(before)
            self._pieces = noise_pieces(self.sites, measured)
            self._cost = node_costs(self.sites, measured.size)
            entry = [[sorted(n.name or "" for n in p.needs), p.energy, p.fatal] for p in self._pieces]
            cost = {n.name or "": c for n, c in self._cost.items()}
            self.journal.put(key, {"pieces": entry, "cost": cost, "runs": runs})
        self._fatal = frozenset(node for piece in self.pieces if piece.fatal for node in piece.needs)

    def _stepped(self, before: float) -> float:
        runs = (self.stepper.executed - before) / max(len(self.sites.all), 1) / max(len(self.judge.feeds), 1)
        self.judge.runs += runs
        return runs

    # -- reaching the tolerance -------------------------------------------------------------------------------------

    def _reach(self, fp16: Measured) -> frozenset[ir.Node]:
        """Sets from the ladder, larger or smaller as measured, until one is within the aim."""
        ladder = build_ladder(self.pieces, self._cost)
        everything = frozenset(site.node for site in self.sites.free)
        if not ladder.steps:
            return everything
        goal = self._first_goal(fp16, ladder)
        low = 0  # steps known not to be enough
        for attempt in range(TRIES):
            count = max(ladder.reach(goal), low + 1)
            if count >= len(ladder.steps) and goal <= 0:
                break
            keep = trim(self.pieces, ladder.nodes(count), self._cost, max(goal, ladder.left(count)))
            self.notify(f"{len(keep)} FP32 nodes (try {attempt + 1})")
            measured = self.measure(keep)
            if measured.aim <= self.aim:
                return keep
            left = self._left(keep)
            if math.isfinite(measured.aim) and left > 0:
                goal = min(goal / 1.5, left * (0.9 * self.aim / measured.aim) ** 2)
            else:
                goal /= 4
            low = max(low, min(count, len(ladder.steps) - 1))
        return self._bisect(ladder, low, everything)

    def _first_goal(self, fp16: Measured, ladder: Ladder) -> float:
        """The squared error to leave, in the noise model's units, from the all-FP16 error where that is finite."""
        if math.isfinite(fp16.aim) and ladder.start > 0 and not self._fatal:
            return ladder.start * (0.9 * self.aim / fp16.aim) ** 2
        allowed = [b.value for b in self.judge.question.tolerance.bounds if b.metric == "rel_l2"]
        return (0.9 * self.aim * min(allowed, default=0.01)) ** 2

    def _left(self, keep: frozenset[ir.Node]) -> float:
        return sum(piece.energy for piece in self.pieces if not piece.needs <= keep)

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
        budget = self.judge.runs + PROOF_RUNS
        proven: dict[ir.Node, float] = {}
        while True:
            open_nodes = sorted(
                (n for n in keep if proven.get(n, 0.0) < CLEAR_BREAK), key=lambda n: (n in self._fatal, n.name or "")
            )
            loads = self._put_back(keep, open_nodes, budget)
            proven.update(loads)
            base = self.measure(keep)
            droppable = [n for n in open_nodes if n in loads and self._aim_of(loads[n], base) <= self.aim]
            smaller = self._drop(keep, droppable, loads)
            if smaller == keep:
                break
            keep = smaller
        return keep, tuple(self._kept(node, proven.get(node)) for node in sorted(keep, key=self._index))

    def _aim_of(self, load: float, base: Measured) -> float:
        """The aim of a set known by its worst load only: the spread grows with the load."""
        spread = (base.aim - base.load) * (load / base.load if base.load > 0 else 1.0)
        return load + spread

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

    def _put_back(
        self, keep: frozenset[ir.Node], nodes: Sequence[ir.Node], budget: float
    ) -> dict[ir.Node, float]:
        """The worst load with each node alone put back; samples are left out once one shows a break."""
        loads: dict[ir.Node, float] = {}
        assignment = self.assignment(keep)
        main = self.sites.model.graph
        order = _worst_first(self.measure(keep).loads)
        for node in nodes:
            if node.graph is not main:
                loads[node] = self.measure(keep - {node}).load
        left = [n for n in nodes if n.graph is main]
        for turn, index in enumerate(order):
            todo = [n for n in left if loads.get(n, 0.0) <= 1.0]
            for batch in _batches(todo, 32):
                if self.judge.runs >= budget and turn == 0:
                    return loads
                self.notify(f"putting back each of {len(todo)} FP32 nodes (sample {turn + 1} of {len(order)})")
                for node, load in self._put_back_on(assignment, keep, batch, index).items():
                    loads[node] = max(load, loads.get(node, 0.0))
        return loads

    def _put_back_on(
        self, assignment: Assignment, keep: frozenset[ir.Node], batch: Sequence[ir.Node], index: int
    ) -> dict[ir.Node, float]:
        names = sorted(n.name or "" for n in keep)
        key = digest("put-back", self.io, self.sites.fmt, index, *names, "-", *(n.name for n in batch))
        known = self.journal.get(key)
        if known is not None:
            self.judge.runs += known["runs"]
            return {node: float(load) for node, load in zip(batch, known["loads"], strict=True)}
        before = self.stepper.executed
        reference = self.judge.references[index]
        loads = put_back(
            self.stepper,
            assignment,
            batch,
            self.judge.feeds[index],
            lambda outputs: self.judge.load_of(reference, outputs)[0],
        )
        self.journal.put(key, {"loads": [str(loads[n]) for n in batch], "runs": self._stepped(before)})
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


def _batches(nodes: Sequence[ir.Node], size: int) -> list[Sequence[ir.Node]]:
    return [nodes[i : i + size] for i in range(0, len(nodes), size)]
