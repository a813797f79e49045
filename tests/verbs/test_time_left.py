"""The time that a search may still take, from the runs that it spent."""

from __future__ import annotations

import math

import pytest

from halfwise.cli.progress import _Lines
from halfwise.search.run_counter import RunCounter
from halfwise.verbs.fix.time_left import Course, with_time_left, with_walks
from tests.support.says import Says


@pytest.mark.parametrize(
    ("most", "spent", "passed", "told"),
    [
        (40, 40, 30.0, "about 24 s left (20 runs)"),  # 29.7 in all are most likely, and the end takes 6.5
        (40, 40, 600.0, "about 8 min left (20 runs)"),
        (40, 1, 30.0, "trying"),  # less than one run tells nothing
        (40, 40, 0.5, "trying"),  # nor does a moment
        (40, 160, 80.0, "about 10 s left (80 runs)"),  # the budget is spent: the answer is checked
        (math.inf, 40, 30.0, "trying"),
    ],
)
def test_it_is_told_where_something_tells(most: float, spent: float, passed: float, told: str, says: Says) -> None:
    now, said = [0.0], list[str]()
    counter = RunCounter(most)
    notify = with_time_left(said.append, Course(counter, 2, check=4.0), clock=lambda: now[0])
    counter.add(spent)
    now[0] = passed
    notify("trying")
    assert len(said) == 1 and said[0].startswith(told) and said[0].endswith("trying")
    says(said[0])


def test_once_an_answer_is_found_it_counts_down() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    course = Course(counter, 2, check=4.0)
    counter.add(4)  # before anybody looked at the clock: they tell nothing of what a run takes
    notify = with_time_left(said.append, course, clock=lambda: now[0])
    for moment in (10.0, 20.0, 30.0):
        counter.add(4)
        now[0] = moment
        if moment == 20.0:
            counter.found()
        notify("trying")
    course.written()
    notify("running the written model")
    counter.search()
    notify("searching again")
    assert [int(text.split()[1]) for text in said] == [79, 52, 42, 38, 81]


@pytest.mark.parametrize("total", [8, 10, 12, 15, 20, 25, 30, 40])
def test_after_the_first_third_it_is_within_a_factor_of_about_two(total: int) -> None:
    """Of a search of so many runs, one a second, with 4 for its check and as much as 6.5 for the end. Behind the fourth
    it is known whether anything is looked for: then a run takes 1.5 s, but in the check."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    course = Course(counter, 1, check=4.0)
    notify = with_time_left(said.append, course, clock=lambda: now[0])
    searched, looks = total - 4, total > 10
    takes = [1.5 if looks and 4 < run <= searched else 1.0 for run in range(1, total + 1)]
    whole = sum(takes) + 6.5
    wrong = []
    for run, seconds in enumerate(takes, 1):
        if run == searched + 1:
            counter.found()
        elif run == 5 and looks:
            counter.look()
        counter.add(1)
        now[0] += seconds
        said.clear()
        notify("trying")
        if said[0] != "trying" and now[0] >= whole / 3:
            left = int(said[0].split()[1])
            wrong.append(max(left / (whole - now[0]), (whole - now[0]) / left))
    assert wrong and max(wrong) <= 2.1


def test_a_search_that_begins_is_told_of() -> None:
    """It takes more passes than a job that is done with the narrow format alone, and dearer ones."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = with_time_left(said.append, Course(counter, 1, check=4.0), clock=lambda: now[0])
    counter.add(4)
    now[0] = 8.0
    notify("running")
    counter.look()
    notify("measuring")
    assert [int(text.split()[1]) for text in said] == [32, 53]


def test_a_model_that_is_not_run_in_the_end_takes_less() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    told = [
        with_time_left(said.append, Course(counter, 1, check=4.0, runs=runs), clock=lambda: now[0])
        for runs in (True, False)
    ]
    counter.add(4)
    counter.found()
    now[0] = 8.0
    for notify in told:
        notify("verifying")
    assert [int(text.split()[1]) for text in said] == [21, 14]


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
    parts = [f"trying: part {p} of 50, about {left} s left" for p, left in told.items()]
    assert said == ["trying", *parts, "trying"]  # no part of a walk that is over stands there


def test_how_far_a_step_is_makes_it_no_other_step(says: Says) -> None:
    lines = _Lines("fix")
    for text in ("reading", "trying", "trying: part 3 of 9", "trying: part 6 of 9"):
        lines.step(text)
    says(lines._said)
    lines.step("trying")
    assert lines._said == "2. trying"
    lines.step("writing")
    assert lines._said == "3. writing"
