"""Measures sets of FP32 nodes, each once: whole, on one sample, or with single nodes reverted to FP16."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.float_sum import float_sum
from halfwise.core.formats import Format
from halfwise.emulation.stepper import Stepper
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.journal import Journal, digest
from halfwise.search.journal_entries import AloneEntry, OneEntry, SetEntry
from halfwise.search.judge import Judge, Measured
from halfwise.search.revert import revert_alone
from halfwise.search.run_counter import RunCounter

__all__ = ["Sets", "Trial", "worst_first"]

PATIENCE = 2.0  # times what one walk of all would take, until nodes that there was no room for are left
WALKED_STEPS = 3  # of a stream, at most, in which nodes are reverted by themselves
ALIKE = 0.9  # of the largest error: samples that all have so much do not tell which is the worst


@dataclass(frozen=True)
class Trial:
    """The worst ratio that was seen, and what to expect of others; both at least so large."""

    ratio: float
    bound: float


class Sets:
    """The sets of nodes of one model. What an interrupted search measured is in the journal, and is not run again."""

    def __init__(
        self,
        sites: Sites,
        judge: Judge,
        stepper: Stepper,
        journal: Journal,
        io: Format,
        label: str = "",
        must: frozenset[ir.Node] = frozenset(),
        model: str = "",
    ) -> None:
        """`label` names the model and the question, where the journal holds measurements of several; `model` the model
        alone. `must` is in every set."""
        self.must = must
        self.sites = sites
        self.judge = judge
        self.stepper = stepper
        self.journal = journal
        self.io = io
        self.label = label
        self.model = model
        self.measured: dict[frozenset[ir.Node], Measured] = {}
        self._one_known: dict[frozenset[ir.Node], float] = {}  # runs of single samples that an earlier job counted
        self._hardest: dict[int, tuple[int, float]] = {}  # by sample: the step of the largest finite error of any set

    def measure(self, keep: frozenset[ir.Node]) -> Measured:
        """The error with just these nodes in FP32; each set is run once."""
        if keep not in self.measured:
            key = self.key("measure", *sorted(n.name or "" for n in keep))
            known = self.journal.get(key, SetEntry, lambda entry: entry.of(len(self.judge.feeds)))
            self.measured[keep] = self._run(keep, key) if known is None else self._known(known, key)
            for index, ratio in enumerate(self.measured[keep].ratios):
                self._remember(keep, index, ratio)
        return self.measured[keep]

    def _run(self, keep: frozenset[ir.Node], key: str) -> Measured:
        before = self.counter.samples
        found = self.judge.measure(self.assignment(keep))
        self.counter.again(self._one_known.pop(keep, 0.0))
        entry: dict[str, object] = {"loads": [str(x) for x in found.ratios], "uncompared": list(found.uncompared)}
        entry["outputs"] = {name: metrics.to_json() for name, metrics in found.outputs.items()}
        if any(found.chances):
            entry |= {"chances": list(found.chances), "smooth": [str(x) for x in found.smooth]}
        if hardest := tuple(map(_hardest, found.steps)):
            entry["hardest"] = [[step, str(ratio)] for step, ratio in hardest]
        self.journal.put(key, {**entry, **self._counted(self.counter.samples - before)})
        self._harder(hardest)
        return found

    def _counted(self, runs: float) -> dict[str, float]:
        """For the journal: what a measurement took, and all by then."""
        return {"runs": runs, "until": self.counter.samples}

    def _known(self, known: SetEntry, key: str) -> Measured:
        self.counter.remember(*self.journal.runs(key))
        self._harder(known.hardest)
        return Measured(
            known.loads,
            known.outputs,
            question=self.judge.question,
            uncompared=known.uncompared,
            chances=known.chances,
            smooth=known.smooth,
        )

    def _harder(self, hardest: Sequence[tuple[int, float]]) -> None:
        for index, (step, ratio) in enumerate(hardest):
            if ratio > self._hardest.get(index, (0, 0.0))[1]:
                self._hardest[index] = step, ratio

    def tried(self, keep: frozenset[ir.Node], target: float) -> Trial:
        """What these nodes in FP32 leave. Where the sample that is likely to do worst is above `target` by itself, the
        others are not run."""
        if keep not in self.measured and len(self.judge.feeds) > 1:
            ratio = self.measure_one(keep, self._likely_worst(keep, target))
            if ratio > target:
                return Trial(ratio, ratio)
        found = self.measure(keep)
        return Trial(found.ratio, found.unseen_bound)

    def _likely_worst(self, keep: frozenset[ir.Node], target: float) -> int:
        """The sample that plain FP16 does worst on; where it does alike on all, as where values overflow on each, that
        of the set measured to miss that differs the least from these nodes."""
        ratios = self.measure(frozenset()).ratios
        if min(ratios) == max(ratios) or min(ratios) > ALIKE * max(ratios):
            missed = [known for known, found in self.measured.items() if found.unseen_bound > target]
            ratios = self.measure(min(missed, key=lambda known: len(known ^ keep), default=frozenset())).ratios
        return worst_first(ratios)[0]

    def measure_one(self, keep: frozenset[ir.Node], index: int) -> float:
        """The ratio on one sample only."""
        key = self.key("measure-one", index, *sorted(n.name or "" for n in keep))
        known = self.journal.get(key, OneEntry)
        if known is not None:
            runs, until = self.journal.runs(key)
            self.counter.remember(runs, until)
            self._one_known[keep] = self._one_known.get(keep, 0.0) + runs
            return self._remember(keep, index, known.load)
        before = self.counter.samples
        ratio = self.judge.measure_one(self.assignment(keep), index)
        self.journal.put(key, {"load": str(ratio), **self._counted(self.counter.samples - before)})
        return self._remember(keep, index, ratio)

    def revert_alone(
        self, keep: frozenset[ir.Node], nodes: Sequence[ir.Node], index: int, most: float = math.inf
    ) -> dict[ir.Node, float]:
        """The ratio on one sample with each node alone reverted, but for those that would take too many walks more:
        none is begun behind so many runs."""
        if self.alone(nodes) >= len(nodes) * self._whole:
            return self._one_by_one(keep, nodes, index, most)
        names = sorted(n.name or "" for n in keep)
        key = self.key("put-back", index, *names, "-", *(n.name for n in nodes))
        known = self.journal.get(key, AloneEntry, lambda entry: len(entry.loads) + len(entry.put_off) == len(nodes))
        if known is not None:
            self.counter.remember(*self.journal.runs(key))
            loads = zip([node for node in nodes if node.name not in known.put_off], known.loads, strict=True)
            return {node: self._remember(keep - {node}, index, ratio) for node, ratio in loads}
        before, ratios, put_off = self.stepper.executed, dict[ir.Node, float](), list[ir.Node]()
        began, walking = self.counter.samples, self._walking(nodes)
        with suppress(InputError):
            ratios = self._walked(keep, walking, index, most)
            put_off += [node for node in walking if node not in ratios]
        runs = self.stepped(before)
        for node in nodes:
            if node in ratios or node in put_off:
                continue
            if self.counter.samples - began >= most:
                put_off.append(node)
            else:  # inside a subgraph, or another does not run alone
                ratios[node] = self.measure_one(keep - {node}, index)
        told = {"loads": [str(ratios[n]) for n in nodes if n in ratios], "put_off": [n.name or "" for n in put_off]}
        self.journal.put(key, {**told, **self._counted(runs)})
        return {node: self._remember(keep - {node}, index, ratio) for node, ratio in ratios.items()}

    def _one_by_one(
        self, keep: frozenset[ir.Node], nodes: Sequence[ir.Node], index: int, most: float
    ) -> dict[ir.Node, float]:
        """The same by whole runs: most of the model lies behind these nodes."""
        emulator, before, found = self.stepper.emulator, self.counter.samples, dict[ir.Node, float]()
        for number, node in enumerate(nodes):
            if self.counter.samples - before >= most:
                break
            if not emulator.streams(self.sites.model):  # which tells how far it is itself
                emulator.walked(number, len(nodes))
            found[node] = self.measure_one(keep - {node}, index)
        return found

    def _walked(
        self, keep: frozenset[ir.Node], nodes: Sequence[ir.Node], index: int, runs: float
    ) -> dict[ir.Node, float]:
        """The same beside walks of the sample: of a stream's first step, which may be as no other, of the last, and of
        the one that was seen to be the hardest."""
        decision, judge, found = self.assignment(keep), self.judge, []
        numbers = sorted({0, judge.lengths[index] - 1, self._hardest.get(index, (0, 0.0))[0]})
        most = min(PATIENCE * self._a_walk(nodes), runs / len(numbers)) * len(self.sites.all)
        for number in numbers:
            feed, right = judge.step(index, number)
            found.append(revert_alone(self.stepper, decision, nodes, feed, partial(judge.ratio_of, right), most))
        return {node: max(each[node] for each in found) for node in nodes if all(node in each for each in found)}

    def alone(self, nodes: Sequence[ir.Node]) -> float:
        """Executions, at most, of the walks in which each of these nodes is reverted: all that comes behind it is
        computed anew. One inside a subgraph takes a whole run."""
        steps, walking = max(self.judge.lengths), self._walking(nodes)
        walked = self._a_walk(walking) * min(steps, WALKED_STEPS) if walking else 0.0
        return walked + (len(nodes) - len(walking)) * self._whole

    @property
    def _whole(self) -> float:
        """Executions that measure one set on one sample."""
        return max(self.judge.lengths) * (1 + len(self.judge.also))

    def _walking(self, nodes: Sequence[ir.Node]) -> list[ir.Node]:
        return [node for node in nodes if node.graph is self.sites.model.graph]

    def _a_walk(self, nodes: Sequence[ir.Node]) -> float:
        return 1 + float_sum(1 - self.sites.of[node].index / len(self.sites.all) for node in nodes)

    def _remember(self, keep: frozenset[ir.Node], index: int, ratio: float) -> float:
        self.judge.memory.ratios[keep | self.must, self.judge.ids[index]] = ratio
        return ratio

    def assignment(self, keep: frozenset[ir.Node]) -> Assignment:
        """All narrow but these."""
        return Assignment.all_narrow(self.sites, keep | self.must, self.io)

    def stepped(self, before: float) -> float:
        """Count what the stepper executed since then, as model runs on one sample."""
        runs = (self.stepper.executed - before) / max(len(self.sites.all), 1)
        self.counter.add(runs)
        return runs

    @property
    def counter(self) -> RunCounter:
        return self.judge.counter

    def key(self, what: str, *parts: object) -> str:
        """Under which the journal keeps what was found out about this model."""
        return digest(what, self.label, self.io, self.sites.fmt, *parts)

    @property
    def model_key(self) -> str:
        """Under which it keeps what any inputs told of this model."""
        return digest("model", self.model, self.io, self.sites.fmt)


def _hardest(ratios: Sequence[float]) -> tuple[int, float]:
    """The step of the largest finite error, and the error."""
    finite = [(ratio, step) for step, ratio in enumerate(ratios) if math.isfinite(ratio)]
    ratio, step = max(finite, default=(0.0, 0))
    return step, ratio


def worst_first(ratios: Sequence[float]) -> list[int]:
    """The numbers of the samples."""
    return sorted(range(len(ratios)), key=lambda i: (-ratios[i], i))
