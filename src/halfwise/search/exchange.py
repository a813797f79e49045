"""Cheaper sets than the one that was found: a few FP32 nodes given up, at times for fewer or cheaper others.

A set found by reverting nodes needs each of its nodes and is not always the cheapest. Which exchanges hold is
predicted from all that was run (`surrogate.py`). The one that is worth most is run on the worst input first, and on
the others while it holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.float_sum import float_sum
from halfwise.core.wording import counted
from halfwise.model.inputs.feed import Feed
from halfwise.search.judge import Judge, Measured, unseen_bound
from halfwise.search.noise_model import NoiseModel
from halfwise.search.run_counter import SAVING_RUNS, Untried
from halfwise.search.search import Search
from halfwise.search.surrogate import Run, Surrogate

__all__ = ["Exchange"]

Array = NDArray[np.float64]
Nodes = frozenset[ir.Node]

PASSES, SHARE = 8, 0.6  # over the searched inputs, of which none holds; and of all runs, by which the last trial ends
PATIENCE = 0.4  # of all runs, in place of both, where more than usual may be spent: as many may fail in a row
MOST_NODES = 32  # in FP32, and as many that may take their place: pairs of them are looked through
HELPS = 0.005  # of the noise that is left, that what takes another node's place removes by itself
SURE = 0.1  # standard deviation of the logarithm of an error whose set was run on a few inputs
PART = 0.5  # of the doubt about a squared error's logarithm: that of the error
LIKELY = 0.04  # least chance that a trial is worth
WORTH = 0.005  # least share of the cost that it saves, chance counted: less is not worth a run
LEAST = 1e-9  # ratio; of less no logarithm is taken


@dataclass(frozen=True, eq=False)
class Exchange:
    """Of one answer, judged by `feeds`: the searched ones come first. `holds`: whether what was measured of all feeds,
    one after the other, is good enough; `limits`: the largest ratio of each."""

    search: Search
    noise: NoiseModel
    feeds: Sequence[Feed]
    limits: Sequence[float]
    judge: Callable[[Sequence[Feed]], Judge]
    holds: Callable[[Nodes, Sequence[Measured]], bool]

    def run(self, keep: Nodes) -> Nodes:
        """The cheapest set that was seen to hold."""
        counter, searched = self.search.judge.counter, self.search.judge.executions
        plenty = counter.most_passes > SAVING_RUNS
        passes = PATIENCE * counter.most_passes if plenty else PASSES
        most = min(counter.most(searched), counter.most_passes * searched * (1.0 if plenty else SHARE))
        most -= self.judge(self.feeds).executions * (1 + len(self.search.judge.also))
        failed: set[Nodes] = set()
        seen = self._measured(keep, range(len(self.feeds)))
        last = min(counter.samples + passes * searched, most)
        while counter.samples < last and 0 < len(keep) <= MOST_NODES:
            trial = self._best(keep, seen, failed)
            if trial is None or not self.judge([self.feeds[_order(seen)[0]]]).affords(Untried.SETS):
                break
            self.search.notify(f"trying {counted(len(trial), 'FP32 node')} (an exchange)")
            measured = self._tried(trial, seen)
            if measured is None:
                failed.add(trial)
            else:
                keep, seen = trial, measured
                last = min(counter.samples + passes * searched, most)
        return keep

    def _tried(self, trial: Nodes, before: Sequence[Measured]) -> list[Measured] | None:
        """What it leaves of all inputs, the worst first, twice as many each time; None as soon as it does not hold."""
        found: dict[int, Measured] = {}
        order = _order(before)
        while len(found) < len(order):
            batch = order[len(found) : max(2 * len(found), 1)]
            if not self.judge([self.feeds[index] for index in batch]).affords(Untried.SETS):
                return None
            found.update(zip(batch, self._measured(trial, batch), strict=True))
            if any(not found[index].ratio <= self.limits[index] for index in batch):
                return None
        measured = [found[index] for index in range(len(before))]
        return measured if self.holds(trial, measured) else None

    def _measured(self, keep: Nodes, places: Sequence[int]) -> list[Measured]:
        """Of each of these inputs, run together."""
        feeds, decision = [self.feeds[place] for place in places], self.search.assignment(keep)
        self.judge(feeds).measure(decision)
        found = [self.judge([feed]).measure(decision) for feed in feeds]
        known = self.search.judge.memory.ratios
        known.update({(keep, feed.id): each.ratio for feed, each in zip(feeds, found, strict=True)})
        return found

    # -- which is worth a trial -----------------------------------------------------------------------------------

    def _best(self, keep: Nodes, seen: Sequence[Measured], failed: set[Nodes]) -> Nodes | None:
        """The set whose saving times its chance to hold is largest; None where none is worth a trial."""
        free = self._free(keep)
        if not free or not self.noise.pieces:
            return None
        surrogate = Surrogate(self.noise, (*sorted(keep, key=self._index), *self._others(keep)), keep, self._runs(seen))
        cost = np.array([self.noise.cost.get(node, 1.0) for node in surrogate.nodes])
        now = surrogate.rows([keep])
        base, spent = float(surrogate.predict(now)[0][0]), float(now[0] @ cost)
        movable = np.array([node in free or node not in keep for node in surrogate.nodes])
        refused = surrogate.rows(list(failed))
        rows = _moves(now[0], cost, movable)
        rows = rows[(rows @ (1 - refused).T + (1 - rows) @ refused.T > 0).all(1)]
        if not len(rows):
            return None
        predicted, doubt = surrogate.predict(rows)
        chance = _chance(self._room(seen) - np.log(predicted / base) / 2, np.hypot(SURE, PART * doubt))
        gain = np.where(chance >= LIKELY, (spent - rows @ cost) * chance, 0.0)
        if gain.max() <= WORTH * spent:
            return None
        best = rows[gain.argmax()]
        return frozenset(node for node, wide in zip(surrogate.nodes, best, strict=True) if wide)

    def _room(self, seen: Sequence[Measured]) -> float:
        """By how much errors may grow until an input or what is promised of others misses, as a logarithm."""
        bound = max(unseen_bound(seen), LEAST)
        rooms = [limit / max(each.ratio, LEAST) for limit, each in zip(self.limits, seen, strict=True)]
        return math.log(min(max(1.0 / bound, 1.0), *rooms))

    def _free(self, keep: Nodes) -> Nodes:
        """What may go without an overflow that there is none of now."""
        lost = [piece.needs for piece in self.noise.pieces if piece.fatal and piece.needs <= keep]
        return keep - self.search.must - frozenset(node for needs in lost for node in needs)

    def _others(self, keep: Nodes) -> list[ir.Node]:
        """What may take the place of a node: by itself it removes some of the noise that is left."""
        sites, gone = self.search.sites, dict[ir.Node, float]()
        for piece in self.noise.pieces:
            if len(piece.needs - keep) == 1:
                (node,) = piece.needs - keep
                gone[node] = gone.get(node, 0.0) + piece.energy
        least = HELPS * self.noise.left(keep)
        able = [node for node in gone if node in sites.of and sites.of[node].free and node not in sites.forced]
        able = [node for node in able if gone[node] >= least]
        return sorted(able, key=lambda node: (-gone[node], self._index(node)))[:MOST_NODES]

    def _runs(self, seen: Sequence[Measured]) -> list[Run]:
        """Every set that was run, told as if on all inputs: each is as hard for it as for the set that stands."""
        squared = {feed.id: max(each.ratio, LEAST) ** 2 for feed, each in zip(self.feeds, seen, strict=True)}
        usual = float_sum(squared.values()) / len(squared)
        found: dict[Nodes, list[float]] = {}
        for (keep, feed), ratio in self.search.judge.memory.ratios.items():
            if feed in squared and math.isfinite(ratio):
                found.setdefault(keep, []).append(ratio**2 * usual / squared[feed])
        return [Run(keep, float_sum(each) / len(each), len(each)) for keep, each in found.items()]

    def _index(self, node: ir.Node) -> int:
        return self.search.sites.of[node].index


def _order(seen: Sequence[Measured]) -> list[int]:
    """The worst input first."""
    return sorted(range(len(seen)), key=lambda each: -seen[each].ratio)


def _moves(row: Array, cost: Array, movable: NDArray[np.bool_]) -> Array:
    """One or two nodes out and none or one in, as long as the whole costs less."""
    one = np.eye(len(row))
    out = np.flatnonzero((row > 0) & movable)
    gone = [one[each] for each in out] + [one[a] + one[b] for a, b in combinations(out, 2)]
    come = np.concatenate([np.zeros((1, len(row))), one[row == 0]])
    rows: Array = (row - np.array(gone).reshape(-1, 1, len(row)) + come).reshape(-1, len(row))
    return rows[rows @ cost < row @ cost - 1e-6]


def _chance(room: Array, deviation: Array) -> Array:
    normal = NormalDist()
    return np.array([normal.cdf(each) for each in room / deviation])
