"""Takes out of a set of FP32 nodes what it does not need, and says of the rest why it stays."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import onnx_ir as ir

from halfwise.core.reasons import Reason
from halfwise.core.wording import counted
from halfwise.search.run_counter import Untried
from halfwise.search.sets import Sets, worst_first

__all__ = ["MANY", "NEAR", "Kept", "Pruning", "kept_node"]

MANY = 64  # FP32 nodes from which proving each one's need alone costs more than it is worth
PROOF_RUNS = (64.0, 8.0)  # model runs that may be spent on putting nodes back one at a time: of few nodes, of many
NEAR = 0.25  # of the tolerance: what is further from it is not kept for its margin
REFUSALS = 4  # nodes that may not go although their errors told so, until that is believed of all
BATCH = 48  # nodes reverted side by side in one walk
DROPS = 3.0  # passes that are left to try what the others told
FEW = 8  # FP32 nodes that are pruned to the end although the runs are spent: that is soon done


@dataclass(frozen=True)
class Kept:
    """Why a node stays in FP32. `without` is the ratio measured with the node alone reverted; None if not measured."""

    node: ir.Node
    why: Reason
    without: float | None


@dataclass(frozen=True)
class Pruning:
    """How to prune one model's sets to a ratio of `target_ratio`; `fatal` are the nodes that overflow in FP16."""

    sets: Sets
    target_ratio: float
    cost: Mapping[ir.Node, float]
    fatal: Collection[ir.Node]
    notify: Callable[[str], None] = lambda _: None

    def run(self, keep: frozenset[ir.Node]) -> tuple[frozenset[ir.Node], tuple[Kept, ...]]:
        """Drop what is not needed until putting back any one node breaks the tolerance, or its reason stands."""
        counter, a_pass = self.sets.counter, self.sets.judge.executions
        most = counter.most(a_pass)
        budget = self._proof_ends(keep, most)
        if len(keep) <= FEW:
            soon = counter.samples + 2 * len(keep) * a_pass * (1 + len(self.sets.judge.also))
            most, budget = max(most, soon), max(budget, soon)
        ratios: dict[ir.Node, float] = {}  # the worst ratio seen with each node alone reverted
        seen: dict[ir.Node, int] = {}  # on how many samples, the worst first
        refused: set[ir.Node] = set()
        size = BATCH
        while True:
            base = self.sets.measure(keep)
            room = self.target_ratio * base.ratio / base.unseen_bound if base.unseen_bound > 0 else self.target_ratio
            droppable = [n for n in keep if ratios.get(n, math.inf) <= room and n not in refused]
            smaller = keep
            if droppable and (size < BATCH or all(node in ratios for node in keep)):
                smaller = self._drop(keep, droppable, ratios, refused, most)
            if smaller != keep:
                # With fewer nodes kept, what left room may leave none now; what left none still does, unless it shares
                # a tensor with a node that went: that is rounded now, whoever else is in FP32.
                beside = {near for node in keep - smaller for near in (*node.predecessors(), *node.successors())}
                keep = smaller
                budget = max(budget, self._proof_ends(keep, most))
                ratios = {n: ratio for n, ratio in ratios.items() if n in keep - beside and ratio > room}
                seen = {node: count for node, count in seen.items() if node in ratios}
                continue
            order = worst_first(base.ratios)
            todo = [
                n for n in keep if n not in seen or (ratios[n] <= room and seen[n] < len(order) and n not in refused)
            ]
            if not todo or counter.samples >= budget:
                break
            turn = min(seen.get(n, 0) for n in todo)
            batch = sorted((n for n in todo if seen.get(n, 0) == turn), key=self._least_likely_needed)[:size]
            while len(batch) > 1 and self.sets.alone(batch) > budget - counter.samples:
                batch.pop()
            while batch and not self.sets.judge.affords(Untried.REVERTING, more=self.sets.alone(batch)):
                batch = batch[: len(batch) // 2]
            if not batch:
                break
            before = counter.samples
            self.notify(
                f"reverting {len(batch)} of {counted(len(keep), 'FP32 node')}, each by itself (input {turn + 1})"
            )
            found = self.sets.revert_alone(keep, batch, order[turn], budget - before)
            for node, ratio in found.items():
                ratios[node] = max(ratio, ratios.get(node, 0.0))
                seen[node] = turn + 1
            each = max((counter.samples - before) / max(len(found), 1), 1e-9)
            size = min(BATCH, max(int((budget - counter.samples) / each), 1))  # as many as are still to be had
        return keep, tuple(kept_node(node, ratios.get(node), self.fatal) for node in sorted(keep, key=self._index))

    def _proof_ends(self, keep: frozenset[ir.Node], most: float) -> float:
        """The count of runs at which no node of these is put back any more to see whether it is needed."""
        counter, a_pass = self.sets.counter, self.sets.judge.executions
        return min(counter.samples + PROOF_RUNS[len(keep) > MANY] * a_pass, most - DROPS * a_pass)

    def _least_likely_needed(self, node: ir.Node) -> tuple[bool, int]:
        """Of others the last first: the least of the model is behind them."""
        return node in self.fatal, -self._index(node)

    def _drop(
        self,
        keep: frozenset[ir.Node],
        droppable: Sequence[ir.Node],
        ratios: dict[ir.Node, float],
        refused: set[ir.Node],
        most: float,
    ) -> frozenset[ir.Node]:
        """The largest part of the droppable nodes that may go together, the least needed first: squared errors add, by
        a factor that is learned from what is measured. One that may not go even alone is refused.
        `most`: the count of runs at which it ends."""
        base = self.sets.measure(keep)
        order = self._in_order(droppable, ratios)
        start, room = base.unseen_bound**2, self.target_ratio**2 - base.unseen_bound**2
        factor = start / base.ratio**2 if base.ratio > 0 else 1.0
        fits, fails = 0, len(order) + 1
        patience = REFUSALS
        while patience and fails - fits > 1 and self.sets.counter.samples < most:
            if not self.sets.judge.affords(Untried.SETS):
                break
            grows = [max(ratios[node] ** 2 - base.ratio**2, 0.0) for node in order]
            totals = list(accumulate(grows))
            going = sum(total * factor <= room for total in totals[: fails - 1])
            if going <= fits and fits:
                break  # one more is told to be too much
            going = max(min(going, (fits + fails) // 2 if fails <= len(order) else going), 1)
            smaller = keep - set(order[:going])
            self.notify(f"trying {counted(len(smaller), 'FP32 node')} ({going} fewer)")
            trial = self.sets.tried(smaller, self.target_ratio)
            bound = trial.bound
            if bound <= self.target_ratio:
                fits = going
            elif going > 1:
                fails = going
            else:  # it was measured alone: its ratio was told too low
                first = order.pop(0)
                ratios[first] = max(ratios[first], trial.ratio)
                refused.add(first)
                fails = len(order) + 1
                patience -= 1
            if bound > self.target_ratio and base.ratio > 0:
                bound = max(bound, trial.ratio * base.unseen_bound / base.ratio)
            if not math.isfinite(bound):
                factor *= 4.0
            elif totals[going - 1] > 0:
                factor = max((bound**2 - start) / totals[going - 1], factor / 1e3)
        return keep - set(order[:fits])

    def _in_order(self, nodes: Sequence[ir.Node], ratios: Mapping[ir.Node, float]) -> list[ir.Node]:
        return sorted(nodes, key=lambda n: (ratios[n] / self.cost.get(n, 1.0), n.name or ""))

    def _index(self, node: ir.Node) -> int:
        return self.sets.sites.of[node].index


def kept_node(node: ir.Node, without: float | None, fatal: Collection[ir.Node]) -> Kept:
    """Why it stays, from the ratio without it and from whether it overflows."""
    if without is None:
        why = Reason.OVERFLOW if node in fatal else Reason.UNPROVEN
    elif without > 1.0:
        why = Reason.OVERFLOW if node in fatal else Reason.ROUNDING
    else:
        why = Reason.MARGIN if without >= NEAR else Reason.UNPROVEN
    return Kept(node, why, without)
