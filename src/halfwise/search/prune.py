"""Takes out of a set of FP32 nodes what it does not need, and says of the rest why it stays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.reasons import Reason
from halfwise.search.sets import Sets, worst_first

__all__ = ["NEAR", "Kept", "Pruning", "kept_node"]

MANY = 64  # FP32 nodes from which proving each one's need alone costs more than it is worth
PROOF_RUNS = (64.0, 8.0)  # model runs that may be spent on putting nodes back one at a time: of few nodes, of many
NEAR = 0.25  # of the tolerance: what is further from it is not kept for its margin
BATCH = 48  # nodes reverted side by side in one walk


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
        counter = self.sets.counter
        budget = counter.samples + PROOF_RUNS[len(keep) > MANY] * self.sets.judge.executions
        ratios: dict[ir.Node, float] = {}  # the worst ratio seen with each node alone reverted
        seen: dict[ir.Node, int] = {}  # on how many samples, the worst first
        refused: set[ir.Node] = set()
        while True:
            order = worst_first(self.sets.measure(keep).ratios)
            todo = [n for n in keep if ratios.get(n, 0.0) <= 1.0 and seen.get(n, 0) < len(order)]
            if not todo or counter.samples >= budget:
                break
            turn = min(seen.get(n, 0) for n in todo)
            batch = sorted((n for n in todo if seen.get(n, 0) == turn), key=self._least_likely_needed)[:BATCH]
            self.notify(f"reverting {len(batch)} of {len(keep)} FP32 nodes, each by itself (input {turn + 1})")
            for node, ratio in self.sets.revert_alone(keep, batch, order[turn]).items():
                ratios[node] = max(ratio, ratios.get(node, 0.0))
                seen[node] = turn + 1
            if any(seen.get(n, 0) == turn for n in todo):
                continue  # more batches on this sample
            base = self.sets.measure(keep)
            room = self.target_ratio * base.ratio / base.unseen_bound if base.unseen_bound > 0 else self.target_ratio
            droppable = [n for n in keep if n in ratios and ratios[n] <= room and n not in refused]
            smaller = keep
            while droppable and smaller == keep and counter.samples < budget:
                smaller = self._drop(keep, droppable, ratios)
                if smaller == keep:  # the first of them was measured alone: its ratio was told too low
                    first = self._in_order(droppable, ratios)[0]
                    ratios[first] = max(ratios[first], self.sets.measure(keep - {first}).ratio)
                    refused.add(first)
                    droppable.remove(first)
            if smaller == keep:
                continue
            keep = smaller
            for node in keep:  # with fewer nodes kept, what did not break may break now
                if ratios.get(node, 0.0) <= 1.0:
                    ratios.pop(node, None)
                    seen.pop(node, None)
        return keep, tuple(kept_node(node, ratios.get(node), self.fatal) for node in sorted(keep, key=self._index))

    def _least_likely_needed(self, node: ir.Node) -> tuple[bool, int]:
        return node in self.fatal, self._index(node)

    def _drop(
        self, keep: frozenset[ir.Node], droppable: Sequence[ir.Node], ratios: dict[ir.Node, float]
    ) -> frozenset[ir.Node]:
        """The largest part of the droppable nodes that may go together; squared errors add, then it is measured."""
        base = self.sets.measure(keep)
        order = self._in_order(droppable, ratios)
        room = (
            (self.target_ratio * base.ratio / base.unseen_bound) ** 2 - base.ratio**2
            if base.unseen_bound > 0
            else self.target_ratio**2
        )
        going: list[ir.Node] = []
        for node in order:
            grows = max(ratios[node] ** 2 - base.ratio**2, 0.0)
            if grows <= room or not going:
                going.append(node)
                room -= grows
        while going:
            smaller = keep - set(going)
            self.notify(f"trying {len(smaller)} FP32 nodes ({len(going)} fewer)")
            if self.sets.measure(smaller).unseen_bound <= self.target_ratio:
                return smaller
            going = going[: len(going) // 2]
        return keep

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
