"""The ladder and the trimming: right by exhaustive comparison on small problems, and never past their promises."""

from __future__ import annotations

import itertools

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfwise.search.choose import Choice, Ladder, build_ladder, least_step, trim
from halfwise.search.noise import Noise

NODES = [ir.Node("", "Relu", [], name=f"n{i}") for i in range(6)]
COST = dict.fromkeys(NODES, 1.0)


def left(pieces: list[Noise], keep: frozenset[ir.Node]) -> float:
    return sum(p.energy for p in pieces if not p.needs <= keep)


def fatal_left(pieces: list[Noise], keep: frozenset[ir.Node]) -> bool:
    return any(p.fatal for p in pieces if not p.needs <= keep)


@st.composite
def problems(draw: st.DrawFn) -> list[Noise]:
    count = draw(st.integers(1, 8))
    return [
        Noise(
            frozenset(draw(st.sets(st.sampled_from(NODES), min_size=1, max_size=3))),
            draw(st.floats(1e-6, 1.0)),
            draw(st.booleans()) if i == 0 else False,
        )
        for i in range(count)
    ]


@given(problems())
def test_the_ladder_accounts_for_every_step(pieces: list[Noise]) -> None:
    ladder = build_ladder(pieces, COST)
    assert ladder.start == pytest.approx(left(pieces, frozenset()))
    for count in range(1, len(ladder.steps) + 1):
        keep = ladder.nodes(count)
        assert ladder.left(count) == pytest.approx(left(pieces, keep), abs=1e-9)
        assert (ladder.steps[count - 1].fatal_left > 0) == fatal_left(pieces, keep)
        assert ladder.steps[count - 1].cost == pytest.approx(len(keep))
    assert left(pieces, ladder.nodes(len(ladder.steps))) == 0


@given(problems(), st.floats(0, 1))
def test_reach_is_the_first_step_within_the_goal(pieces: list[Noise], goal: float) -> None:
    ladder = build_ladder(pieces, COST)
    count = ladder.reach(goal)

    def good(n: int) -> bool:
        keep = ladder.nodes(n)
        return ladder.left(n) <= goal and not fatal_left(pieces, keep)

    assert good(count) or count == len(ladder.steps)
    assert not any(good(n) for n in range(count))


@given(problems(), st.floats(0, 1))
@settings(max_examples=200)
def test_trim_keeps_the_goal_and_leaves_nothing_to_drop(pieces: list[Noise], goal: float) -> None:
    everything = frozenset(NODES)
    kept = trim(pieces, everything, COST, goal)
    assert left(pieces, kept) <= goal + 1e-12
    assert not fatal_left(pieces, kept)
    for node in kept:
        fewer = kept - {node}
        assert left(pieces, fewer) > goal - 1e-12 or fatal_left(pieces, fewer)


@given(problems())
def test_ladder_and_trim_are_near_the_best_set(pieces: list[Noise]) -> None:
    goal = 0.1 * left(pieces, frozenset())
    ladder = build_ladder(pieces, COST)
    found = trim(pieces, ladder.nodes(ladder.reach(goal)), COST, goal)
    best = next(
        size
        for size in range(len(NODES) + 1)
        for keep in map(frozenset, itertools.combinations(NODES, size))
        if left(pieces, keep) <= goal and not fatal_left(pieces, keep)
    )
    assert len(found) <= best + 2


def test_what_is_given_is_not_chosen_again() -> None:
    pieces = [Noise(frozenset(NODES[:2]), 1.0, False)]
    ladder = build_ladder(pieces, COST, start=frozenset(NODES[:1]))
    assert ladder.nodes(1) == frozenset(NODES[1:2])


def test_the_cheaper_of_two_equal_pieces_comes_first() -> None:
    cost = {**COST, NODES[0]: 3.0}
    pieces = [Noise(frozenset(NODES[:1]), 1.0, False), Noise(frozenset(NODES[1:2]), 1.0, False)]
    assert build_ladder(pieces, cost).steps[0].added == (NODES[1],)


@pytest.mark.parametrize("enough", [1, 350, 520, 1000])
def test_between_a_set_that_misses_and_a_large_one_lies_one_that_is_hardly_more_than_enough(enough: int) -> None:
    nodes = [ir.Node("", "Relu", [], name=f"n{index}") for index in range(1000)]
    ladder = Ladder(1.0, 0, tuple(Choice((node,), 0.0, 0, 1.0) for node in nodes))
    asked = []

    def holds(some: frozenset[ir.Node]) -> bool:
        asked.append(len(some))
        return len(some) >= enough

    assert enough <= least_step(ladder, 0, 1000, holds, tries=4, worth=16) <= enough + 1000 / 2**4
    assert len(asked) <= 4
    assert least_step(ladder, 0, 20, holds, tries=4, worth=16) == 20  # no try could save so many
