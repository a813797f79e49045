"""Counts what a job runs, in model executions, and knows how many it may."""

from __future__ import annotations

import math
from enum import StrEnum

__all__ = ["RunCounter", "Untried"]


class Untried(StrEnum):
    """What a budget of runs left undone."""

    SETS = "smaller sets of FP32 nodes"
    REVERTING = "reverting single nodes"
    REPAIRS = "repairs"
    VARIANTS = "inputs close to those given"
    ANEW = "a search with the inputs that were missed"
    SECOND = "a search with less rounding"
    CURVE = "points of the curve"


class RunCounter:
    """Passed to whatever runs a model. One sample through the whole model counts 1, through half of its nodes 0.5.

    A budget is for all of a job: what the verdict takes is kept back from the start, and whatever may be left out asks
    first. No budget is smaller than what an answer takes.
    """

    def __init__(self, most_passes: float = math.inf) -> None:
        self.samples = 0.0
        self.most_passes = most_passes
        self.untried = dict[Untried, None]()
        self._a_pass = 1
        self._verdict = self._overflows = self._answer = 0.0

    def add(self, samples: float) -> None:
        self.samples += samples

    def plan(self, verdict: float, overflows: float, answer: float) -> None:
        """What the verdict takes, what it takes to look for overflows, and what the smallest search before it."""
        self._verdict, self._overflows = verdict, overflows
        self._answer = self.samples + answer + verdict + overflows

    def over(self, a_pass: int) -> None:
        """A pass is over so many samples."""
        self._a_pass = max(a_pass, 1)

    def none_overflows(self) -> None:
        """No value comes near the limits of the format."""
        self._overflows = 0.0

    @property
    def left(self) -> float:
        """The executions that may go into anything but the verdict."""
        most = max(self.most_passes * self._a_pass, self._answer)
        return most - self._verdict - self._overflows - self.samples

    def free(self, samples: float, what: Untried) -> bool:
        """Whether so many executions may go into something; what may not is remembered."""
        if samples <= self.left:
            return True
        self.untried[what] = None
        return False

    def passes(self, samples: int) -> float:
        """The same in passes over so many samples."""
        return self.samples / max(samples, 1)
