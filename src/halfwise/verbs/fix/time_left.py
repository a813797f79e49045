"""How far a search is: what is being tried, the model runs spent, the parts walked, and how long the rest takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from halfwise.core.told import Stand, TimeLeft, Told
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.search.run_counter import RunCounter

__all__ = ["Course", "Teller"]

_EVERY_S = 1.0  # that a walk through a model is told of
_LEAST_WALKS = 5  # over all samples, that any job takes: FP32, plain FP16, a look inside, less rounding, writing
_TELLING = 0.25  # of a walk: its first parts may be the largest
_FAR = 1.25  # times what is said, from which on it is corrected upwards where a step begins
_PACE = 0.5  # of a search, whose end nobody knows: what was foreseen of the time that passes
_WRITE, _RUN, _REPORT = 1.0, 3.5, 2.0  # passes that take as long as the steps which end a job
_LEAST_SEARCH = 8.0  # passes that a job takes in which FP32 nodes or repairs are looked for
_BEHIND = 4  # passes behind what an earlier job did, until they tell: going through that takes time, too
_DEAR = 1.5  # how much longer a pass of such a search takes, at least, than one that only runs the model


class Course:
    """What is left of a job, in passes over so many samples.

    Until an answer is found and checked, which takes `check` passes, a job takes at least what it took, and its budget
    for saving nodes and that check at most: the geometric mean of the two is off by the least factor. `runs` says that
    the written model is run, too.
    """

    def __init__(
        self, counter: RunCounter, samples: int, check: float, runs: bool = True, kept: KeptWalks | None = None
    ) -> None:
        self._counter, self._samples, self._check = counter, samples, check
        self._kept = kept or KeptWalks()
        self._writing, self.behind = _WRITE, _RUN * runs + _REPORT  # the model is written, and what comes then

    @property
    def ending(self) -> float:
        return self._writing + self.behind

    @property
    def done(self) -> float:
        return self._counter.passes(self._samples)

    @property
    def remembered(self) -> float:
        """What counts and took no time: an earlier job's measurements, and walks that were kept."""
        return self._counter.remembered + self._kept.taken

    @property
    def looks(self) -> bool:
        """Whether FP32 nodes or repairs are looked for."""
        return self._counter.looks

    @property
    def searches(self) -> bool:
        return self._counter.found_at is None

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
        self._writing = 0.0


class Teller:
    """To call with a message: it is told with the runs spent and how long the rest takes, once that tells.

    In the check and the end of a job a pass takes as long as in its first ones, where nothing is looked for; in a
    search as long as all did. What is said goes down with the clock, though never below what a walk itself still takes.
    It is corrected downwards at once, and upwards where a step begins and more is left.
    """

    def __init__(self, notify: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._notify, self._clock = notify, clock
        self._course: Course | None = None
        self._since = self._before = self._first = self._remembered = 0.0
        self._step, self._left = "", TimeLeft(0.0, 0.0, least=True)
        self._walks, self._before_step, self._walk = 0, 0, clock()
        self._told, self._behind = self._walk, False

    def follow(self, course: Course) -> None:
        """From now on it is known what the job takes."""
        self._course = course
        self._measure(course, self._clock())

    def __call__(self, text: str) -> None:
        now = self._clock()
        self._step, self._before_step, self._behind = text, self._walks, False
        found, known = self._estimated(now), self._left.after(now)
        if found is not None and not self._left.least and known <= found.seconds <= _FAR * known:
            found = replace(found, seconds=known)
        self._left = found or self._left
        self._tell(now)

    def walked(self, done: int, total: int) -> None:
        """So many parts of a walk through a model are done: where it takes long, that is told behind the message."""
        now = self._clock()
        if not done:
            self._walks, self._walk, self._told = self._walks + 1, now, now
            if self._behind:
                self._behind = False
                self._tell(now)
        elif self._step and now - self._told >= _EVERY_S:
            self._told, self._behind = now, True
            if done >= _TELLING * total:
                self._keep_above((now - self._walk) / done * total, 1 - done / total, now)
            number, part = self._walks - self._before_step, f"part {done} of {total}"
            self._tell(now, part if number < 2 else f"walk {number}, {part}")

    def _keep_above(self, walk: float, share: float, now: float) -> None:
        """What is left is never less than this share of a walk, and what comes behind it."""
        if self._left.least and (self._course is None or self._left.seconds):
            self._left = TimeLeft(walk * (share + max(_LEAST_WALKS - self._walks, 0)), now, least=True)
            return
        least = walk * share + (0.0 if self._course is None else self._first * self._course.behind)
        if self._left.after(now) < least:
            self._left = replace(self._left, seconds=least, at=now)

    def _tell(self, now: float, part: str = "") -> None:
        stand = Stand(self._step, part, None if self._course is None else self._course.done, self._left)
        self._notify(Told(stand.text(now), stand))

    def _estimated(self, now: float) -> TimeLeft | None:
        course = self._course
        if course is None:
            return None
        if course.remembered != self._remembered:
            self._measure(course, now)
        passes, passed = course.done - self._before, now - self._since
        if course.left is None or passes < (_BEHIND if course.remembered else 1) or passed < 1:
            return None
        self._first = self._first or passed / passes
        search, check = course.left
        dear = max(passed / passes, self._first * _DEAR if course.looks else 0.0)
        seconds = dear * search + self._first * (check + course.ending)
        return TimeLeft(seconds, now, pace=_PACE if course.searches else 1.0)

    def _measure(self, course: Course, now: float) -> None:
        """From now on, what a pass takes."""
        self._since, self._before, self._first, self._remembered = now, course.done, 0.0, course.remembered
