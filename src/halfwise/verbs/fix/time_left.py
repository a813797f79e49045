"""How far a search is: what is being tried, the model runs spent, the parts walked, and how long the rest takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from halfwise.search.run_counter import RunCounter

__all__ = ["Course", "with_time_left", "with_walks"]

_EVERY_S = 1.0  # that a walk through a model is told of
_WRITE, _RUN, _REPORT = 1.0, 3.5, 2.0  # passes that take as long as the steps which end a job
_LEAST_SEARCH = 8.0  # passes that a job takes in which FP32 nodes or repairs are looked for
_DEAR = 1.5  # how much longer a pass of such a search takes, at least, than one that only runs the model


class Course:
    """What is left of a job, in passes over so many samples.

    Until an answer is found and checked, which takes `check` passes, a job takes at least what it took, and its budget
    for saving nodes and that check at most: the geometric mean of the two is off by the least factor. `runs` says that
    the written model is run, too.
    """

    def __init__(self, counter: RunCounter, samples: int, check: float, runs: bool = True) -> None:
        self._counter, self._samples, self._check = counter, samples, check
        self.ending = _WRITE + _RUN * runs + _REPORT

    @property
    def done(self) -> float:
        return self._counter.passes(self._samples)

    @property
    def looks(self) -> bool:
        """Whether FP32 nodes or repairs are looked for."""
        return self._counter.looks

    @property
    def left(self) -> tuple[float, float] | None:
        """Of the search, and of the check of what it finds; None where nobody knows."""
        most, found_at = self._counter.most_passes, self._counter.found_at
        if found_at is not None:
            return 0.0, max(found_at / self._samples + self._check - self.done, 0.0)
        if most == math.inf or self.done < 1:
            return None
        least = max(self.done, _LEAST_SEARCH) if self.looks else self.done
        return max(math.sqrt(least * (most + self._check)) - self.done - self._check, 0.0), self._check

    def written(self) -> None:
        self.ending -= _WRITE


def with_time_left(
    notify: Callable[[str], None], course: Course, clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """Puts before each message how long the rest takes and how many runs are spent, once that tells: a narrow terminal
    cuts off the end. In the check and the end of a job a pass takes as long as in its first ones, where nothing is
    looked for; in a search as long as all did."""
    since, before = clock(), course.done
    first: list[float] = []

    def tell(text: str) -> None:
        passes, passed, left = course.done - before, clock() - since, course.left
        if left is None or passes < 1 or passed < 1:
            return notify(text)
        if not first:
            first.append(passed / passes)
        (plain,), (search, check) = first, left
        dear = max(passed / passes, plain * _DEAR if course.looks else 0.0)
        seconds = dear * search + plain * (check + course.ending)
        return notify(f"about {_spoken(seconds)} left ({course.done:.0f} runs): {text}")

    return tell


def with_walks(
    notify: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> tuple[Callable[[str], None], Callable[[int, int], None]]:
    """Two to call: with a message, and in each walk through a model with the parts done and their number.

    A walk that takes long is told behind the last message, until it ends.
    """
    last, since, told, behind = "", clock(), clock(), False

    def tell(text: str) -> None:
        nonlocal last, behind
        last, behind = text, False
        notify(text)

    def walked(done: int, total: int) -> None:
        nonlocal since, told, behind
        now = clock()
        if not done:
            since = told = now
            if behind:
                tell(last)
        if done and last and now - told >= _EVERY_S:
            told, behind = now, True
            left = _spoken((now - since) / done * (total - done))
            notify(f"{last}: part {done} of {total}, about {left} left")

    return tell, walked


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
