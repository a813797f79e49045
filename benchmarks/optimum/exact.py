"""The cheapest set of FP32 nodes that keeps a bound, by branch and bound.

What is assumed: a set that misses the bound misses it with more nodes in FP16, too. Errors that cancel can break that,
so `without_assumption` goes through every cheaper set where they are few enough, and `breaks` counts how often the
assumption fails on random pairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Found", "Holds", "breaks", "cheapest", "without_assumption"]

Holds = Callable[[int], bool]  # of the nodes in FP16, as bits


@dataclass
class _State:
    best: float
    narrow: int
    until: float
    closed: bool = True
    known: dict[int, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """The cheapest set as the nodes in FP16; `proven`: nothing cheaper holds (as far as the assumption goes)."""

    cost: float
    narrow: int
    proven: bool


def cheapest(costs: Sequence[float], holds: Holds, start: int, seconds: float) -> Found:
    """`start`: the nodes in FP16 of a set that holds."""
    every = (1 << len(costs)) - 1
    state = _State(_cost(costs, every & ~start), start, time.monotonic() + seconds)
    _improve(costs, holds, state, every)
    order = sorted(range(len(costs)), key=lambda place: -costs[place])
    _branch(costs, holds, state, every, 0, 0, order)
    return Found(state.best, state.narrow, state.closed)


def _ask(state: _State, holds: Holds, narrow: int) -> bool:
    if narrow not in state.known:
        state.known[narrow] = holds(narrow)
    return state.known[narrow]


def _improve(costs: Sequence[float], holds: Holds, state: _State, every: int) -> None:
    """One node less, or two less and one more, as long as that helps: a good set to begin with prunes much."""
    grown = True
    while grown and time.monotonic() < state.until:
        grown = False
        wide = [place for place in range(len(costs)) if not state.narrow >> place & 1]
        others = [place for place in range(len(costs)) if state.narrow >> place & 1]
        moves = [(1 << a, 0) for a in wide]
        moves += [(1 << a, 1 << c) for a in wide for c in others if costs[c] < costs[a]]
        moves += [(1 << a | 1 << b, 1 << c) for a in wide for b in wide if a < b for c in others]
        for off, on in moves:
            trial = (state.narrow | off) & ~on
            cost = _cost(costs, every & ~trial)
            if cost < state.best - 1e-9 and _ask(state, holds, trial):
                state.best, state.narrow, grown = cost, trial, True
                break


def _branch(
    costs: Sequence[float], holds: Holds, state: _State, every: int, wide: int, narrow: int, order: Sequence[int]
) -> None:
    """`wide` and `narrow` are decided. Undecided nodes that cannot be narrow beside these have to be wide."""
    if time.monotonic() > state.until:
        state.closed = False
        return
    if not _ask(state, holds, narrow):
        return
    left = []
    for place in order:
        bit = 1 << place
        if not (wide | narrow) & bit:
            if _ask(state, holds, narrow | bit):
                left.append(place)
            else:
                wide |= bit
                if _cost(costs, wide) >= state.best - 1e-9:
                    return
    spent = _cost(costs, wide)
    if spent >= state.best - 1e-9:
        return
    if _ask(state, holds, every & ~wide):
        state.best, state.narrow = spent, every & ~wide
        return
    apart = _disjoint(costs, holds, state, narrow, left)
    if spent + apart >= state.best - 1e-9:
        return
    place = left[0]
    _branch(costs, holds, state, every, wide, narrow | 1 << place, left[1:])
    _branch(costs, holds, state, every, wide | 1 << place, narrow, left[1:])


def _disjoint(costs: Sequence[float], holds: Holds, state: _State, narrow: int, left: Sequence[int]) -> float:
    """Groups without common nodes that miss the bound: of each, one node at least is wide."""
    total, rest = 0.0, sorted(left, key=lambda place: costs[place])
    while rest:
        group, so_far = [], narrow
        for place in rest:
            group.append(place)
            so_far |= 1 << place
            if not _ask(state, holds, so_far):
                break
        else:
            return total
        for place in list(group):  # as few as still miss it
            fewer = so_far & ~(1 << place)
            if not _ask(state, holds, fewer):
                so_far = fewer
                group.remove(place)
        total += min(costs[place] for place in group)
        rest = [place for place in rest if place not in group]
    return total


def without_assumption(costs: Sequence[float], holds: Holds, below: float, most: int) -> tuple[float | None, bool]:
    """The cheapest of all sets that cost less than `below`, none assumed away; whether they were few enough."""
    order = sorted(range(len(costs)), key=lambda place: costs[place])
    sets: list[tuple[float, int]] = []
    stack = [(0, 0, 0.0)]
    while stack:
        start, wide, spent = stack.pop()
        sets.append((spent, wide))
        if len(sets) > most:
            return None, False
        for index in range(start, len(order)):
            more = spent + costs[order[index]]
            if more >= below - 1e-9:
                break
            stack.append((index + 1, wide | 1 << order[index], more))
    every = (1 << len(costs)) - 1
    for spent, wide in sorted(sets):
        if holds(every & ~wide):
            return spent, True
    return below, True


def breaks(count: int, holds: Holds, tries: int, seed: int) -> tuple[int, int]:
    """How many random sets miss the bound and hold it with one more node in FP16; and how many missed it."""
    rng = np.random.default_rng(seed)
    broken = seen = 0
    for _ in range(tries):
        narrow = int(sum(1 << place for place in range(count) if rng.random() < rng.uniform(0.2, 0.95)))
        others = [place for place in range(count) if not narrow >> place & 1]
        if not others or holds(narrow):
            continue
        seen += 1
        broken += holds(narrow | 1 << int(rng.choice(others)))
    return broken, seen


def _cost(costs: Sequence[float], wide: int) -> float:
    total, place = 0.0, 0
    while wide:
        if wide & 1:
            total += costs[place]
        wide >>= 1
        place += 1
    return total
