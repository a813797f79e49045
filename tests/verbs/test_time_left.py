"""The time that a search may still take, from the runs that it spent."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from halfwise.core.told import Told
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.search.run_counter import RunCounter
from halfwise.verbs.fix.time_left import Course, Teller
from tests.support.says import Says


def _following(said: list[str], course: Course, now: list[float]) -> Teller:
    teller = Teller(said.append, clock=lambda: now[0])
    teller.follow(course)
    return teller


def _seconds(text: str) -> int:
    return int(text.split()[2 if text.startswith("at least") else 1])


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
    notify = _following(said, Course(counter, 2, check=4.0), now)
    counter.add(spent)
    now[0] = passed
    notify("trying")
    assert len(said) == 1 and said[0].startswith(told) and said[0].endswith("trying")
    says(said[0])


def test_once_an_answer_is_found_it_counts_down() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    course = Course(counter, 2, check=4.0)
    counter.add(4)  # before anybody looked at the clock: they tell nothing of what a run takes
    notify = _following(said, course, now)
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
    assert [_seconds(text) for text in said] == [79, 52, 42, 38, 81]


@pytest.mark.parametrize("total", range(8, 41))
def test_after_the_first_third_it_is_within_a_factor_of_about_two(total: int) -> None:
    """Of a search of so many runs, one a second, with 4 for its check and as much as 6.5 for the end. Behind the fourth
    it is known whether anything is looked for: then a run takes 1.5 s, but in the check."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    course = Course(counter, 1, check=4.0)
    notify = _following(said, course, now)
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
            left = _seconds(said[0])
            wrong.append(max(left / (whole - now[0]), (whole - now[0]) / left))
    assert wrong and max(wrong) <= 2.2


def test_a_search_that_begins_is_told_of() -> None:
    """It takes more passes than a job that is done with the narrow format alone, and dearer ones."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = _following(said, Course(counter, 1, check=4.0), now)
    counter.add(4)
    now[0] = 8.0
    notify("running")
    counter.look()
    notify("measuring")
    assert [_seconds(text) for text in said] == [32, 53]


def test_a_model_that_is_not_run_in_the_end_takes_less() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    told = [_following(said, Course(counter, 1, check=4.0, runs=runs), now) for runs in (True, False)]
    counter.add(4)
    counter.found()
    now[0] = 8.0
    for notify in told:
        notify("verifying")
    assert [_seconds(text) for text in said] == [21, 14]


def test_it_goes_down_and_is_corrected_where_a_step_finds_far_more() -> None:
    """A search of unknown length, each run of which takes 1 s: about as many seem to be left behind each."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = _following(said, Course(counter, 1, check=4.0), now)
    counter.look()
    counter.add(7)
    for moment in range(7, 21):
        counter.add(1)
        now[0] = float(moment)
        notify("trying")
    assert [_seconds(text) for text in said] == [18, 18, 17, 17, 16, 16, 15, 15, 18, 17, 17, 16, 16, 15]


def test_a_walk_that_takes_long_is_told_behind_the_last_message(says: Says) -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    tell = _following(said, Course(counter, 1, check=4.0), now)
    counter.add(4)
    now[0] = 4.0
    counter.found()
    tell("trying")
    for part in range(50):
        tell.walked(part, 50)
        now[0] += 0.125
    tell.walked(0, 50)  # another one begins
    now[0] += 0.9
    tell.walked(9, 50)
    now[0] += 0.9
    tell.walked(18, 50)
    assert [_seconds(text) for text in said] == [10, 10, 10, 9, 8, 7, 6, 6, 9]  # no less than a walk and the end take
    says(said)


def test_of_the_first_walk_it_is_told_what_a_job_takes_at_least(says: Says) -> None:
    """Five such walks. What is read first takes longest, and tells nothing alone."""
    now, said = [0.0], list[str]()
    tell = Teller(said.append, clock=lambda: now[0])
    tell("running")
    for part in range(16):
        now[0] = 2.0 + part / 2 if part else 0.0
        tell.walked(part, 16)
    now[0] = 10.0
    tell("running in FP16")
    for part in range(5):
        now[0] = 10.0 + part / 2
        tell.walked(part, 16)
    assert [_seconds(text) for text in said if "left" in text] == [68, 57, 51, 47, 44, 41, 41, 40, 30]
    says(said)


def test_walks_that_were_kept_take_no_time(tmp_path: Path) -> None:
    """And nor does what an earlier job measured: the same command again counts what it runs itself."""
    now, said, counter, kept = [0.0], list[str](), RunCounter(40), KeptWalks(tmp_path / "walks")
    notify = _following(said, Course(counter, 1, check=4.0, kept=kept), now)
    kept.keep("a", {"x": np.ones(1, np.float32)})
    counter.look()
    counter.remember(9)
    assert kept.answer("a") is not None
    for at in range(3, 13, 2):  # going through what is there takes time, too: the first few passes tell nothing
        counter.add(1)
        now[0] = float(at)
        notify("trying")
    assert [_seconds(text) for text in said if "left" in text] == [41]


def test_whoever_shows_it_counts_it_down() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = _following(said, Course(counter, 1, check=4.0), now)
    counter.add(4)
    counter.found()
    now[0] = 8.0
    notify("verifying")
    told = pickle.loads(pickle.dumps(said[0]))  # as it comes from a worker
    stand = Told.stand_of(told)
    assert told == said[0] and stand.step == "verifying"
    assert [_seconds(stand.text(moment)) for moment in (8.0, 9.0, 20.0)] == [21, 20, 9]
    assert stand.text(30.0) == stand.step
