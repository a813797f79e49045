"""The time that a search may still take, from the runs that it spent."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
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
    ("most", "spent", "passed", "looks", "told"),
    [
        (40, 40, 30.0, True, "about 30 s left, 20 runs done"),  # 33 in all are most likely, and the end takes 6.5
        (40, 40, 600.0, True, "about 10 min left, 20 runs done"),
        (40, 40, 30.0, False, "at least 16 s left, 20 runs done"),  # unless something is looked for
        (40, 1, 30.0, True, "trying"),  # less than one run tells nothing
        (40, 40, 0.5, True, "trying"),  # nor does a moment
        (40, 160, 80.0, True, "about 10 s left, 80 runs done"),  # the budget is spent: the answer is checked
        (math.inf, 40, 30.0, True, "trying"),
    ],
)
def test_it_is_told_where_something_tells(
    most: float, spent: float, passed: float, looks: bool, told: str, says: Says
) -> None:
    now, said = [0.0], list[str]()
    counter = RunCounter(most)
    notify = _following(said, Course(counter, 2, check=4.0), now)
    counter.add(spent)
    if looks:
        counter.look()
    now[0] = passed
    notify("trying")
    assert len(said) == 1 and said[0].startswith(told) and said[0].endswith("trying")
    says(said[0])


def test_once_an_answer_is_found_it_counts_down() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    course = Course(counter, 2, check=4.0)
    counter.add(4)  # before anybody looked at the clock: they tell nothing of what a run takes
    notify = _following(said, course, now)
    counter.look()
    for moment in (5.0, 10.0, 15.0):
        counter.add(4)
        now[0] = moment
        if moment == 10.0:
            counter.found()
        notify("trying")
    course.written()
    notify("running the written model")
    counter.search()
    notify("searching again")
    assert [_seconds(text) for text in said] == [51, 26, 21, 19, 49]


def test_a_check_that_turns_out_longer_is_told_with_the_step_that_makes_it_so() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = _following(said, Course(counter, 2, check=4.0), now)
    counter.add(8)
    counter.found()
    now[0] = 8.0
    notify("verifying")
    before = _seconds(said[-1])
    counter.check_more(20)  # ten passes of two seconds
    notify("running inputs near those given")
    assert _seconds(said[-1]) >= before + 10
    counter.search()
    counter.check_more(20)  # nothing is checked any more
    assert counter.found_at is None


def test_of_an_answer_that_is_hoped_for_it_is_known_what_it_takes() -> None:
    """Five passes of 2 s, the check of 4 and the end, 6.5; and a search again where it was not one."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = _following(said, Course(counter, 2, check=4.0), now)
    counter.look()
    for moment in (10.0, 20.0):
        counter.add(10)
        now[0] = moment
        counter.hope(10 if moment == 10.0 else None)
        notify("trying")
    assert [_seconds(text) for text in said] == [31, 41]


def _shares_told(total: int, dear: float, moments: Sequence[float], again: int = 0) -> dict[float, float]:
    """What is told to be left over what is, at parts of a job's time: of 3 runs of 1 s, 6 walks node by node, twice as
    dear as a pass behind them, 4 runs for the check, and as much as 6.5 for the end. 16 are planned. At the run `again`
    a later search begins."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    counter.plan(verdict=4.0, overflows=0.0, answer=12.0)
    notify = _following(said, Course(counter, 1, check=4.0), now)
    takes = [2.0 * dear if 3 < run <= 9 else dear if 9 < run <= total - 4 else 1.0 for run in range(1, total + 1)]
    whole, told = sum(takes) + 6.5, dict[float, float]()
    for run, seconds in enumerate(takes, 1):
        if run == 4:
            counter.look()
        elif run == again:
            counter.search_later()
        elif run == total - 3:
            counter.found()
        notify("trying")
        for moment in moments:
            if now[0] <= moment * whole < now[0] + seconds:
                left = Told.stand_of(said[-1]).left
                assert left is not None
                told[moment] = left.after(moment * whole) / (whole * (1 - moment))
        counter.add(1)
        now[0] += seconds
    assert len(told) == len(moments)
    return told


@pytest.mark.parametrize("dear", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("total", range(24, 41, 4))
def test_of_most_searches_it_is_within_a_factor_of_two_at_a_quarter_and_at_half(total: int, dear: float) -> None:
    told = _shares_told(total, dear, (0.25, 0.5))
    assert all(0.5 <= each <= 2.0 for each in told.values()), told


@pytest.mark.parametrize("dear", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("total", range(48, 77, 4))
def test_of_a_job_that_searches_again_it_is_within_a_factor_of_three_at_half_and_of_two_at_three_quarters(
    total: int, dear: float
) -> None:
    """A later search begins where the budget of the first is spent, and has one of its own."""
    told = _shares_told(total, dear, (0.5, 0.75), again=38)
    assert 1 / 3 <= told[0.5] <= 3.0 and 0.5 <= told[0.75] <= 2.0, told


def test_a_search_that_begins_is_told_of() -> None:
    """It takes more passes than a job that is done with the narrow format alone."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    counter.plan(verdict=4.0, overflows=0.0, answer=12.0)
    notify = _following(said, Course(counter, 1, check=4.0), now)
    counter.add(4)
    now[0] = 8.0
    notify("running")
    counter.look()
    notify("measuring")
    assert [_seconds(text) for text in said] == [21, 56]
    assert said[0].startswith("at least")


def test_what_was_dear_before_tells_little_of_the_rest() -> None:
    """A pass of the rest takes as long as one of the latter half did: here a sixth of those before."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = _following(said, Course(counter, 1, check=4.0), now)
    counter.look()
    for passes, seconds in ((2, 1.0), (6, 36.0), (6, 6.0), (3, 3.0)):
        counter.add(passes)
        now[0] += seconds
        notify("trying")
    assert [_seconds(text) for text in said] == [10, 75, 46, 20]


def test_a_model_that_is_not_run_in_the_end_takes_less() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    told = [_following(said, Course(counter, 1, check=4.0, runs=runs), now) for runs in (True, False)]
    counter.add(4)
    counter.found()
    now[0] = 8.0
    for notify in told:
        notify("verifying")
    assert [_seconds(text) for text in said] == [21, 13]


def test_a_large_model_is_written_and_looked_at_by_the_processor_however_fast_a_gpu_runs_it() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    course = Course(counter, 1, check=4.0, runs=False, weights=28 * 10**9)
    notify = _following(said, course, now)
    counter.add(4)
    counter.found()
    now[0] = 4.0
    notify("verifying")
    course.written()
    notify("writing the report")
    assert [_seconds(text) for text in said] == [32, 18]


def test_a_large_model_is_looked_into_by_a_search_and_only_run_by_a_check() -> None:
    """2 s a pass at first, and 5 s of each that looked into it."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    course = Course(counter, 1, check=4.0, runs=False, large=True)
    notify = _following(said, course, now)
    counter.add(2)
    counter.look()
    counter.hope(3)
    now[0] = 4.0
    notify("looking")  # 3 passes of 3 s, 4 of 2 s, and the end
    counter.add(1)
    now[0] = 9.0
    notify("trying")  # 2 of 3 s, as all so far: about what the clock says
    counter.add(2)
    counter.found()
    now[0] = 19.0
    notify("verifying")
    course.checked()
    notify("writing")
    assert [_seconds(text) for text in said] == [22, 17, 13, 5]


def test_the_end_of_a_stream_runs_its_last_steps_alone() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = _following(said, Course(counter, 128, check=1.0, last=2), now)
    counter.add(128)
    now[0] = 64.0
    notify("running")
    counter.add(128)
    counter.found()
    now[0] = 128.0
    notify("verifying")
    assert [_seconds(text) for text in said] == [70, 70]  # 64 s of a check, and 6.5 passes over two steps


def test_runs_are_over_the_inputs_that_are_searched_by_now() -> None:
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = _following(said, Course(counter, 2, check=4.0), now)
    for inputs in (2, 4):
        counter.over(inputs)
        counter.look()
        counter.add(12)
        now[0] += 12.0
        notify("trying")
    assert ["6 runs done" in text for text in said] == [True, True]
    assert _seconds(said[1]) > _seconds(said[0])  # a budget of 40 runs is twice as many executions now


def test_it_goes_down_and_is_corrected_where_a_step_finds_far_more() -> None:
    """A search of unknown length, each run of which takes 1 s: more seem to be left behind each. One takes 20 s."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    notify = _following(said, Course(counter, 1, check=4.0), now)
    counter.look()
    counter.add(7)
    for moment in (*range(7, 14), 34):
        counter.add(1)
        now[0] = float(moment)
        notify("trying")
    *steps, dear = [_seconds(text) for text in said]
    assert steps == [18, 18, 17, 17, 16, 16, 15] and dear > steps[-1]


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
    assert [_seconds(text) for text in said if "left" in text] == [68, 44, 44, 42, 42, 40, 40, 39, 30]
    says(said)


def test_a_walk_that_slows_down_is_told_by_its_latter_half() -> None:
    """As a file is written: the system takes its first part into memory, and the disk the rest at its own pace."""
    now, said, counter = [0.0], list[str](), RunCounter(40)
    tell = _following(said, Course(counter, 4, check=0.0), now)
    counter.add(4)
    now[0] = 1.0
    counter.found()
    tell("writing")
    behind = 5.5  # seconds, after it, where a pass takes one
    for second in range(24):
        now[0] = 1.0 + second
        tell.walked(min(second, 4) * 10 + max(second - 4, 0) * 3, 100)
    told = [_seconds(text) for text in said[9:]]
    truth = [24 - second + behind for second in range(9, 24)]
    assert len(told) == len(truth)
    assert all(right / 1.3 <= left <= right * 1.3 for left, right in zip(told, truth, strict=True))


def test_walks_that_were_kept_take_no_time(tmp_path: Path) -> None:
    """And nor does what an earlier job measured: the same command again counts what it runs itself."""
    now, said, counter, kept = [0.0], list[str](), RunCounter(40), KeptWalks(tmp_path / "walks")
    notify = _following(said, Course(counter, 1, check=4.0, kept=kept), now)
    kept.keep("a", {"x": np.ones(1, np.float32)})
    counter.look()
    counter.remember(9, 9)
    assert kept.answer("a") is not None
    for at in range(3, 13, 2):  # going through what is there takes time, too: it does not count
        counter.add(1)
        now[0] = float(at)
        notify("trying")
    assert [_seconds(text) for text in said if "left" in text] == [41, 40, 39, 38]


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
