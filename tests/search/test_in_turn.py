"""One question of many inputs: the hardest first, no more than it takes, and nothing before it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from halfwise.model.inputs.feed import Feed
from halfwise.precision.assignment import Assignment
from halfwise.search.in_turn import InTurn
from halfwise.search.judge import Judge, Measured

BEFORE, AFTER = cast(Assignment, "before"), cast(Assignment, "after")


class _Asked:
    """Judges by given ratios, and remembers which inputs were run with which decision."""

    def __init__(self, ratios: Mapping[Assignment, Sequence[float]]) -> None:
        self.ratios = ratios
        self.runs = list[tuple[Assignment, int]]()
        self.made = 0

    def judge(self, feeds: Sequence[Feed]) -> Judge:
        asked = self

        class _Judge:
            def measure(self, decision: Assignment) -> Measured:
                new = [(decision, feed.id) for feed in feeds]
                asked.runs += [each for each in new if each not in asked.runs]
                return Measured(tuple(asked.ratios[decision][feed.id] for feed in feeds))

        return cast(Judge, _Judge())

    def feeds(self) -> tuple[Feed, ...]:
        self.made += 1
        return tuple(Feed(index, cast(dict[str, Any], {})) for index in range(len(self.ratios[BEFORE])))


def test_nothing_is_made_or_run_before_the_first_question() -> None:
    asked = _Asked({BEFORE: [0.1], AFTER: [0.1]})
    turn = InTurn(asked.judge, asked.feeds, BEFORE, 1.0)
    assert not asked.made and not asked.runs
    assert turn.bears(AFTER) and asked.made == 1


def test_the_input_that_was_hardest_is_the_first_and_a_miss_the_last() -> None:
    asked = _Asked({BEFORE: [0.1, 0.8, 0.5], AFTER: [0.2, 1.1, 0.6]})
    assert not InTurn(asked.judge, asked.feeds, BEFORE, 1.0).bears(AFTER)
    assert [feed for decision, feed in asked.runs if decision is AFTER] == [1]


def test_an_input_that_was_missed_is_asked_first_from_then_on() -> None:
    other = cast(Assignment, "other")
    asked = _Asked({BEFORE: [0.9, 0.1], AFTER: [0.9, 1.2], other: [0.9, 1.1]})
    turn = InTurn(asked.judge, asked.feeds, BEFORE, 1.0)
    assert not turn.bears(AFTER) and not turn.bears(other)
    assert [feed for decision, feed in asked.runs if decision is other] == [1]


@pytest.mark.parametrize(("after", "bears"), [(1.2, True), (1.3, False)])
def test_what_misses_the_limit_may_be_replaced_by_what_is_no_worse(after: float, bears: bool) -> None:
    asked = _Asked({BEFORE: [1.2, 0.3], AFTER: [after, 0.3]})
    assert InTurn(asked.judge, asked.feeds, BEFORE, 0.9).bears(AFTER) is bears


def test_what_is_to_be_expected_of_other_inputs_counts_where_it_is_bounded() -> None:
    ratios = {BEFORE: [0.1, 0.1, 0.1, 0.1], AFTER: [0.89, 0.88, 0.87, 0.89]}
    asked = _Asked(ratios)
    assert InTurn(asked.judge, asked.feeds, BEFORE, 0.9).bears(AFTER)
    assert not InTurn(asked.judge, asked.feeds, BEFORE, 0.9, 1.0).bears(AFTER)


def test_without_inputs_nothing_is_borne() -> None:
    asked = _Asked({BEFORE: [], AFTER: []})
    assert not InTurn(asked.judge, asked.feeds, BEFORE, 1.0).bears(AFTER)
