"""How far a search is: what is being tried, the model runs spent, the parts walked, and how long the rest takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from halfwise.core.told import Stand, TimeLeft, Told
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.search.run_counter import RunCounter
from halfwise.verbs.fix.pass_costs import PassCosts

__all__ = ["Course", "Teller"]

_EVERY_S = 1.0  # that a walk through a model is told of
_LEAST_WALKS = 5  # over all samples, that any job takes: FP32, plain FP16, a look inside, less rounding, writing
_TELLING = 0.25  # of a walk: its first parts may be the largest
_FAR = 1.25  # times what is said, from which on it is corrected upwards where a step begins
_PACE = 0.5  # of a search, whose end nobody knows: what was foreseen of the time that passes
_WRITE, _RUN, _REPORT = 1.0, 3.5, 2.0  # passes that take as long as the steps which end a job
_WRITE_LARGE, _REPORT_LARGE = 1.5, 1.0  # the same of a model that is too large to be run
_NODE_BY_NODE = 1.5  # times what a large model's run takes, at least: a pass that goes through it so
_GIGABYTE_S = 0.5  # that either of these takes for each of its weights at least, as on a machine with a GPU


class Course:
    """What is left of a job, in passes over so many samples.

    An answer is checked, which takes `check` passes, and written: that is all, unless something is looked for. Then a
    job takes at least what it took and that check, and what the least answer takes; and its budget at most: the
    geometric mean of the two is off by the least factor. The more of it is spent, the likelier is a later search, which
    has its own. Where an answer is hoped for, what it takes is known. `runs` says that the written model is run, too;
    `weights` are bytes. Of streams, whose samples are their steps, the end runs the `last` ones only. A `large` model
    is looked into in most passes of a search, and only run in a check.
    """

    def __init__(
        self,
        counter: RunCounter,
        samples: int,
        check: float,
        runs: bool = True,
        kept: KeptWalks | None = None,
        weights: int = 0,
        last: int | None = None,
        large: bool = False,
    ) -> None:
        self._counter, self._samples, self._check = counter, samples, check
        self._kept = kept or KeptWalks()
        self._writing, self._behind = (_WRITE, _RUN + _REPORT) if runs else (_WRITE_LARGE, _REPORT_LARGE)
        self._part = 1.0 if last is None else last / max(samples, 1)
        self._least = _GIGABYTE_S * weights / 1e9
        self._large, self._is_checked, self._is_written = large, False, False

    def ending(self, run: float) -> float:
        """Seconds until the end from where the model is written, by those of a pass that only runs the model."""
        return self.behind(run) + (0.0 if self._is_written else max(run * self._part * self._writing, self._least))

    def behind(self, run: float) -> float:
        """The same from where it is written."""
        return max(run * self._part * self._behind, self._least)

    def searching(self, costs: PassCosts) -> float:
        """Seconds of a pass of a search: as those of the latter half of what was done took."""
        return max(costs.latest, _NODE_BY_NODE * costs.run) if self._large else costs.latest

    def checking(self, costs: PassCosts) -> float:
        """The same of the check: half of them are runs, and half as all passes were."""
        return costs.run if self._large else (costs.mean + costs.run) / 2

    @property
    def done(self) -> float:
        return self._counter.passes(self._samples)

    @property
    def runs(self) -> float:
        """As they are counted by now: where inputs joined a search, one is over more samples."""
        return self._counter.passes(max(self._counter.a_pass, self._samples))

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
        """Whether nobody knows for how long."""
        return self._counter.found_at is None and self._counter.hoped_at is None

    @property
    def left(self) -> tuple[float, float] | None:
        """Of the search, and of the check of what it finds; None where nobody knows."""
        counter = self._counter
        if self._is_checked:
            return 0.0, 0.0
        if counter.found_at is not None:
            return 0.0, max(counter.found_at / self._samples + self._check - self.done, 0.0)
        if not self.looks:
            return 0.0, self._check
        if counter.hoped_at is not None:
            return max(counter.hoped_at / self._samples - self.done, 0.0), self._check
        if counter.saving == math.inf:
            return None
        least, wider = max(self.done + self._check, counter.least / self._samples), counter.a_pass / self._samples
        later = counter.later_saving * min(self.done / counter.saving, 1.0) ** 2
        most = max((counter.saving + later) * max(wider, 1.0), least)
        return max(math.sqrt(least * most) - self.done - self._check, 0.0), self._check

    def checked(self) -> None:
        self._is_checked = True

    def written(self) -> None:
        self._is_written = True


class Teller:
    """To call with a message: it is told with the runs spent and how long the rest takes, once that tells.

    In the end of a job a pass takes as long as its first ones, which only run the model. Until an answer is found or
    something is looked for, it is told what a job takes at least. What is said goes down with the clock, though never
    below what a walk itself still takes. It is corrected downwards at once, and upwards where a step begins and more
    is left.
    """

    def __init__(self, notify: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._notify, self._clock = notify, clock
        self._course: Course | None = None
        self._costs = PassCosts()
        self._counted = self._done = self._remembered = 0.0  # when, and what, the last time
        self._known = False
        self._step, self._left = "", TimeLeft(0.0, 0.0, least=True)
        self._walks, self._before_step, self._walk = 0, 0, clock()
        self._told, self._behind = self._walk, False
        self._parts = [(self._walk, 0)]  # of the walk: when it was told of, and how many were done

    def follow(self, course: Course) -> None:
        """From now on it is known what the job takes."""
        self._course = course
        self._count(course, self._clock())

    def __call__(self, text: str) -> None:
        now = self._clock()
        if self._course is None and not self._step:
            self._counted = now
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
            self._parts = [(now, 0)]
            if self._behind:
                self._behind = False
                self._tell(now)
        elif self._step and now - self._told >= _EVERY_S:
            self._told, self._behind = now, True
            if done >= _TELLING * total:
                self._keep_above(self._rest(now, done, total), now)
            self._parts.append((now, done))
            number, part = self._walks - self._before_step, f"part {done} of {total}"
            self._tell(now, part if number < 2 else f"walk {number}, {part}")

    def _rest(self, now: float, done: int, total: int) -> float:
        """Seconds that the walk still takes, by the latter half of what it took: a disk slows once much waits."""
        half = (self._walk + now) / 2
        at, before = max((part for part in self._parts if part[0] <= half and part[1] < done), default=self._parts[0])
        return (now - at) / (done - before) * (total - done)

    def _keep_above(self, rest: float, now: float) -> None:
        """What is left is never less than the rest of a walk, and what comes behind it."""
        if not self._known and (self._course is None or self._left.seconds):
            more = max(_LEAST_WALKS - self._walks, 0) * (now - self._walk + rest)
            self._left = TimeLeft(rest + more, now, least=True)
            return
        least = rest + (0.0 if self._course is None else self._course.behind(self._costs.run))
        if self._left.after(now) < least:
            self._left = replace(self._left, seconds=least, at=now)

    def _tell(self, now: float, part: str = "") -> None:
        stand = Stand(self._step, part, None if self._course is None else self._course.runs, self._left)
        self._notify(Told(stand.text(now), stand))

    def _estimated(self, now: float) -> TimeLeft | None:
        course = self._course
        if course is None:
            return None
        self._count(course, now)
        left = course.left
        if left is None or not self._costs.tell:
            return None
        self._known = True
        search, check = left
        costs = self._costs
        seconds = course.searching(costs) * search + course.checking(costs) * check + course.ending(costs.run)
        pace = _PACE if course.looks and course.searches else 1.0
        return TimeLeft(seconds, now, least=course.searches and not course.looks, pace=pace)

    def _count(self, course: Course, now: float) -> None:
        """What a step took; nothing where some of it took no time, or before the first."""
        if self._step and course.remembered == self._remembered:
            self._costs = self._costs.after(now - self._counted, course.done - self._done)
        self._counted, self._done, self._remembered = now, course.done, course.remembered
        if course.looks or not course.searches:
            self._costs = self._costs.begun()
