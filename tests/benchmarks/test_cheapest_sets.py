"""The benchmark of cheapest sets: its fast model is the emulator's, and its search finds what trying all sets finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.optimum.exact import cheapest, without_assumption
from benchmarks.optimum.graphs import PARTS, problem
from benchmarks.optimum.switched import Switched
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import STRICT, WIDE, Profile
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites


@pytest.mark.parametrize("profile", [STRICT, WIDE])
@pytest.mark.parametrize("seed", [3, 7, 9])
def test_switches_give_what_the_emulator_gives(seed: int, profile: Profile) -> None:
    posed = problem(seed)
    sites = Sites(load(posed.model))
    switched, rng = Switched(posed, sites, wide=profile is WIDE), np.random.default_rng(seed)
    for share in (0.3, 0.8):
        keep = frozenset(site.node for site in sites.free if rng.random() < share)
        (told,) = Emulator(profile).session(Assignment.all_narrow(sites, keep)).run(switched.batch).values()
        found = switched.outputs(switched.mask([node.name or "" for node in keep]))
        assert np.isfinite(told).all() == np.isfinite(found).all()
        assert not np.isfinite(told).all() or np.array_equal(told, found)


def test_every_part_is_drawn() -> None:
    drawn = [problem(seed) for seed in range(33)]
    assert {part for each in drawn for part in each.parts} == set(PARTS)
    assert all(12 <= len(each.model.graph.node) <= 40 for each in drawn)


@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_cheapest_set(seed: int) -> None:
    """Noise that adds up, and pairs that must not be narrow together; all 1,024 sets are tried beside it."""
    rng = np.random.default_rng(seed)
    count = 10
    noise, costs = rng.exponential(size=count), list(rng.uniform(0.3, 3.0, count))
    pairs = [tuple(rng.choice(count, 2, replace=False)) for _ in range(3)]

    def holds(narrow: int) -> bool:
        loud = sum(noise[place] for place in range(count) if narrow >> place & 1)
        return loud < noise.sum() / 2 and not any(narrow >> a & 1 and narrow >> b & 1 for a, b in pairs)

    every = (1 << count) - 1
    sets = [
        sum(1 << place for place in wide) for r in range(count + 1) for wide in itertools.combinations(range(count), r)
    ]
    right = min(sum(costs[p] for p in range(count) if wide >> p & 1) for wide in sets if holds(every & ~wide))
    found = cheapest(costs, holds, 0, 30.0)
    assert found.proven and found.cost == pytest.approx(right) and holds(found.narrow)
    lowest, complete = without_assumption(costs, holds, right + 1e-6, 5000)
    assert lowest == pytest.approx(right) and complete
    assert without_assumption(costs, holds, sum(costs), 10) == (None, False)
