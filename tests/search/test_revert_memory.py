"""Trials side by side in one walk, on tensors so large that not all of them may be held at once."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from halfwise.core.formats import Format
from halfwise.core.tolerance import Tolerance
from halfwise.emulation import store
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search import revert
from halfwise.search.journal import Journal
from halfwise.search.judge import Judge, Question
from halfwise.search.sets import Sets
from tests.models.build import model, node, value, weight

NODES, SIZE = 24, 1 << 14


class Watched(Stepper):
    """Counts the tensors made that are alive at once."""

    def __init__(self) -> None:
        super().__init__(Emulator())
        self.alive, self.most = 0, 0

    def run(self, *given: Any, **named: Any) -> Mapping[ir.Value, Any]:
        made = super().run(*given, **named)
        for array in made.values():
            self.alive += 1
            weakref.finalize(array, self._gone)
        self.most = max(self.most, self.alive)
        return made

    def _gone(self) -> None:
        self.alive -= 1


def chain() -> Sites:
    names = ["x", *(f"t{number}" for number in range(NODES - 1)), "y"]
    nodes = [node("Mul", f"{one} by", two) for one, two in pairwise(names)]
    shapes = [value("x", shape=(SIZE,))], [value("y", shape=(SIZE,))]
    return Sites(load(model(nodes, *shapes, [weight("by", np.full(SIZE, 1.003, np.float32))])))


def reverted(
    sites: Sites, stepper: Stepper | None = None, most: float = math.inf
) -> tuple[dict[str | None, float], int]:
    """What the output adds up to with each node reverted, and the most tensors made that were alive at once."""
    keep, watched = frozenset(site.node for site in sites.free), Watched()
    feed = {"x": np.random.default_rng(3).standard_normal(SIZE).astype(np.float32)}
    base = Assignment.all_narrow(sites, keep)
    sums = revert.revert_alone(stepper or watched, base, keep, feed, lambda outputs: float(np.sum(outputs["y"])), most)
    return {each.name: total for each, total in sums.items()}, watched.most


def test_trials_for_which_there_is_no_room_wait_and_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = chain()
    together, many = reverted(sites)
    monkeypatch.setattr(revert, "ROOM", 4 * SIZE * 4)
    apart, few = reverted(sites)
    assert together == apart and len(together) == NODES
    assert many > NODES and few < NODES / 2


def test_what_trials_let_go_of_counts_as_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or memory is given back too seldom: they hold as much as the run itself."""
    sites, freed = chain(), list[int]()
    monkeypatch.setattr(store.Freed, "count", lambda self, size: freed.append(size))
    reverted(sites)
    beside = sum(freed) / (4 * SIZE) - (NODES - 1)  # the run's own, without its output
    assert beside > NODES * (NODES - 1) / 2 * 0.9  # each trial lets go of all behind its node; few differ in nothing


def test_a_model_of_more_weights_has_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its walks take longer, and it takes more memory as it is."""
    monkeypatch.setattr(revert, "ROOM", 0)
    monkeypatch.setattr(revert, "WEIGHTS_TO_ROOM", 1 / NODES)
    assert reverted(chain())[1] > NODES


@pytest.mark.parametrize("most", [1, 3 * NODES])
def test_nodes_without_room_are_left_where_their_walks_would_take_too_much(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    sites = chain()
    whole, _ = reverted(sites)
    monkeypatch.setattr(revert, "ROOM", 4 * SIZE * 4)
    stepper = Stepper(Emulator())
    told, _ = reverted(sites, stepper, most)
    assert 0 < len(told) < NODES and told.items() <= whole.items()
    assert stepper.executed <= most + 8 * NODES  # the last walk is walked to its end


def sets_of(sites: Sites, journal: Journal, walked: Callable[[int, int], None] = lambda *_: None) -> Sets:
    feed = {"x": np.random.default_rng(3).standard_normal(SIZE).astype(np.float32)}
    judge = Judge(sites, Emulator(walked=walked), Question(Tolerance.default()), [feed])
    return Sets(sites, judge, Stepper(judge.emulator), journal, Format.FP32)


def test_no_walk_begins_behind_the_runs_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revert, "ROOM", 4 * SIZE * 4)
    sites = chain()
    keep = frozenset(site.node for site in sites.free)
    nodes, walks = sorted(keep, key=lambda each: sites.of[each].index), list[int]()
    for most in (1.0, 9.0, math.inf):
        begun = list[int]()
        found = sets_of(sites, Journal(), lambda done, _, begun=begun: begun.append(done)).revert_alone(
            keep, nodes, 0, most
        )
        walks.append(begun.count(0))
        assert 0 < len(found) < NODES or most == math.inf
    assert walks[0] == 1 < walks[1] < walks[2]


@pytest.mark.parametrize(("most", "tried"), [(1.0, 1), (2.5, 3), (math.inf, 4)])
def test_no_whole_run_begins_behind_the_runs_that_are_left(most: float, tried: int) -> None:
    """Of nodes that nearly all of the model lies behind. How many are done is told."""
    sites, told = chain(), list[tuple[int, int]]()
    keep = frozenset(site.node for site in sites.free)
    first = sorted(keep, key=lambda each: sites.of[each].index)[:4]
    sets = sets_of(sites, Journal(), lambda *parts: told.append(parts))
    assert list(sets.judge.references[0]) == ["y"]
    assert list(sets.revert_alone(keep, first, 0, most)) == first[:tried]
    assert told == [(number, 4) for number in range(tried)]


def test_those_that_were_left_are_known_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revert, "ROOM", 4 * SIZE * 4)
    monkeypatch.setattr("halfwise.search.sets.PATIENCE", 0.0)
    sites, journal, found = chain(), Journal(), list[Mapping[ir.Node, float]]()
    keep = frozenset(site.node for site in sites.free)
    nodes = sorted(keep, key=lambda each: sites.of[each].index)
    for _ in range(2):
        sets = sets_of(sites, journal)
        found.append(sets.revert_alone(keep, nodes, 0))
        left = [each for each in nodes if each not in found[-1]]
        found.append(sets.revert_alone(keep, left, 0))
    assert 0 < len(found[0]) < NODES and found[0].keys().isdisjoint(found[1])
    assert found[:2] == found[2:] and sets.stepper.executed == 0
