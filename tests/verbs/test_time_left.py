"""The time that a search may still take, from the runs that it spent."""

from __future__ import annotations

import math

import pytest

from halfwise.cli.progress import _Lines
from halfwise.search.run_counter import RunCounter
from halfwise.verbs.fix.time_left import with_time_left, with_walks
from tests.support.says import Says


@pytest.mark.parametrize(
    ("most", "spent", "passed", "told"),
    [
        (40, 20, 30.0, "at most 90 s left"),
        (40, 20, 300.0, "at most 15 min left"),
        (40, 1, 30.0, "trying"),  # less than one run tells nothing
        (40, 20, 0.5, "trying"),  # nor does a moment
        (40, 81, 30.0, "trying"),  # the budget is spent
        (math.inf, 20, 30.0, "trying"),
    ],
)
def test_it_is_told_where_something_tells(most: float, spent: float, passed: float, told: str, says: Says) -> None:
    now, said = [0.0], list[str]()
    counter = RunCounter(most)
    notify = with_time_left(said.append, counter, 2, clock=lambda: now[0])
    counter.add(spent)
    now[0] = passed
    notify("trying")
    assert len(said) == 1 and said[0].startswith(told) and said[0].endswith("trying")
    says(said[0])


def test_a_walk_that_takes_long_is_told_behind_the_last_message() -> None:
    now, said = [0.0], list[str]()
    tell, walked = with_walks(said.append, clock=lambda: now[0])
    tell("trying")
    for part in range(50):
        walked(part, 50)
        now[0] += 0.125
    walked(0, 50)  # another one begins
    now[0] += 0.9
    walked(9, 50)
    told = {8: 5, 16: 4, 24: 3, 32: 2, 40: 1, 48: 0}
    assert said == ["trying", *(f"trying: part {p} of 50, about {left} s left" for p, left in told.items())]


def test_how_far_a_step_is_makes_it_no_other_step(says: Says) -> None:
    lines = _Lines("fix")
    for text in ("reading", "trying", "trying: part 3 of 9", "trying: part 6 of 9"):
        lines.step(text)
    says(lines._said)
    lines.step("writing")
    assert lines._said == "3. writing"
