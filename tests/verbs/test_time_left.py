"""The time that a search may still take, from the runs that it spent."""

from __future__ import annotations

import math

import pytest

from halfwise.search.run_counter import RunCounter
from halfwise.verbs.fix.time_left import with_time_left


@pytest.mark.parametrize(
    ("most", "spent", "passed", "told"),
    [
        (40, 20, 30.0, "trying (10 of at most 40 model runs; at most 90 s left)"),
        (40, 20, 300.0, "trying (10 of at most 40 model runs; at most 15 min left)"),
        (40, 1, 30.0, "trying"),  # less than one run tells nothing
        (40, 20, 0.5, "trying"),  # nor does a moment
        (40, 81, 30.0, "trying"),  # the budget is spent
        (math.inf, 20, 30.0, "trying"),
    ],
)
def test_it_is_told_where_something_tells(most: float, spent: float, passed: float, told: str) -> None:
    now, said = [0.0], list[str]()
    counter = RunCounter(most)
    notify = with_time_left(said.append, counter, 2, clock=lambda: now[0])
    counter.add(spent)
    now[0] = passed
    notify("trying")
    assert said == [told]
