"""Chooses FP32 nodes from the noise model: the cheapest sets that remove the most noise, one growing order of them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.float_sum import float_sum
from halfwise.search.noise import Noise

__all__ = ["Choice", "Ladder", "build_ladder", "least_step", "trim"]


@dataclass(frozen=True)
class Choice:
    """A step up the ladder: the nodes it adds, and what is predicted to be left after it."""

    added: tuple[ir.Node, ...]
    left: float
    fatal_left: int
    cost: float


@dataclass(frozen=True)
class Ladder:
    """From nothing in FP32 to everything that matters in FP32, best value first."""

    start: float
    fatal_start: int
    steps: tuple[Choice, ...]

    def nodes(self, count: int) -> frozenset[ir.Node]:
        return frozenset(node for step in self.steps[:count] for node in step.added)

    def left(self, count: int) -> float:
        return self.steps[count - 1].left if count else self.start

    def reach(self, goal: float) -> int:
        """How many steps until nothing fatal is left and the predicted squared error is at most `goal`."""
        for count in range(len(self.steps) + 1):
            fatal = self.steps[count - 1].fatal_left if count else self.fatal_start
            if not fatal and self.left(count) <= goal:
                return count
        return len(self.steps)


def build_ladder(
    pieces: Sequence[Noise], cost: Mapping[ir.Node, float], start: frozenset[ir.Node] = frozenset()
) -> Ladder:
    """Greedy by removed noise over added cost; fatal noise comes first. `start` is in FP32 already."""
    books = _Books(pieces, cost, start)
    left, fatal_left = books.start
    begin, fatal_begin = left, fatal_left
    steps: list[Choice] = []
    spent = 0.0
    while (lack := books.next()) is not None:
        added = tuple(sorted(lack, key=lambda n: n.name or ""))
        spent += float_sum(cost[n] for n in added)
        for gone in books.take(added):
            left, fatal_left = left - gone.energy, fatal_left - gone.fatal
        steps.append(Choice(added, max(left, 0.0), fatal_left, spent))
    return Ladder(begin, fatal_begin, tuple(steps))


class _Books:
    """What each piece still lacks, with the most worth it on top; `start`: the noise at first, and the fatal pieces."""

    def __init__(self, pieces: Sequence[Noise], cost: Mapping[ir.Node, float], start: frozenset[ir.Node]) -> None:
        self._pieces, self._cost = pieces, cost
        self._lacking = [set(piece.needs - start) for piece in pieces]
        self._readers: dict[ir.Node, list[int]] = {}
        for index, lack in enumerate(self._lacking):
            for node in lack:
                self._readers.setdefault(node, []).append(index)
        open_ = [(piece, lack) for piece, lack in zip(pieces, self._lacking, strict=True) if lack]
        self.start = float_sum(piece.energy for piece, _ in open_), sum(piece.fatal for piece, _ in open_)
        self._heap = [(_key(pieces[i], lack, cost), i) for i, lack in enumerate(self._lacking) if lack]
        heapq.heapify(self._heap)

    def next(self) -> set[ir.Node] | None:
        """The nodes that the piece most worth it lacks; an entry that others have overtaken is weighed anew."""
        while self._heap:
            key, index = heapq.heappop(self._heap)
            lack = self._lacking[index]
            if not lack:
                continue
            fresh = _key(self._pieces[index], lack, self._cost)
            if fresh == key:
                return lack
            heapq.heappush(self._heap, (fresh, index))
        return None

    def take(self, added: tuple[ir.Node, ...]) -> list[Noise]:
        """The pieces that are gone with these nodes in FP32, too."""
        gone = []
        for index in {i for node in added for i in self._readers.get(node, ())}:
            lack, piece = self._lacking[index], self._pieces[index]
            if not lack:
                continue
            lack -= set(added)
            if lack:
                heapq.heappush(self._heap, (_key(piece, lack, self._cost), index))
            else:
                gone.append(piece)
        return gone


def least_step(
    ladder: Ladder, low: int, high: int, holds: Callable[[frozenset[ir.Node]], bool], *, tries: int, worth: int
) -> int:
    """The lowest step seen to hold above one that does not, by halves; a try has to save so many nodes."""
    for _ in range(tries):
        middle = (low + high) // 2
        nodes = ladder.nodes(middle)
        if len(ladder.nodes(high)) - len(nodes) < worth:
            break
        low, high = (low, middle) if holds(nodes) else (middle, high)
    return high


def trim(
    pieces: Sequence[Noise], chosen: frozenset[ir.Node], cost: Mapping[ir.Node, float], goal: float
) -> frozenset[ir.Node]:
    """Drop chosen nodes, least loss per cost first, while the prediction stays within `goal`; nothing fatal."""
    kept = set(chosen)
    by_node: dict[ir.Node, list[int]] = {node: [] for node in kept}
    missing = [len(piece.needs - kept) for piece in pieces]
    for index, piece in enumerate(pieces):
        for node in piece.needs & kept:
            by_node[node].append(index)
    left = float_sum(piece.energy for piece, lack in zip(pieces, missing, strict=True) if lack)

    def loss(node: ir.Node) -> float:
        returning = [pieces[i] for i in by_node[node] if missing[i] == 0]
        return float("inf") if any(p.fatal for p in returning) else float_sum(p.energy for p in returning)

    heap = [(loss(node) / cost[node], node.name or "", node) for node in kept]
    heapq.heapify(heap)
    while heap:
        _, _, node = heapq.heappop(heap)
        if node not in kept:
            continue
        now = loss(node)
        if left + now > goal:
            continue
        kept.remove(node)
        left += now
        for i in by_node[node]:
            missing[i] += 1
            if missing[i] == 1:
                for other in pieces[i].needs & kept:
                    heapq.heappush(heap, (loss(other) / cost[other], other.name or "", other))
    return frozenset(kept)


def _key(piece: Noise, lack: set[ir.Node], cost: Mapping[ir.Node, float]) -> tuple[int, float]:
    price = math.fsum(cost[node] for node in lack)
    return (0 if piece.fatal else 1, -piece.energy / price if not piece.fatal else price)
