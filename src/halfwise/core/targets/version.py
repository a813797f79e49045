"""Versions and ranges of versions; a short version such as 10.3 stands for every release that begins with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = ["Fit", "Span", "Version", "VersionRange", "best_fit"]

_DEPTH = 4
_BIG = 1 << 30
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,3}")
_BOUND = re.compile(r"(?P<relation>>=|<=|>|<)?(?P<version>[\d.]+)(?P<unsure>\?)?")


class Fit(Enum):
    """Whether something holds: for every release meant, for some of them or perhaps, or for none."""

    YES = "yes"
    MAYBE = "maybe"
    NO = "no"


@dataclass(frozen=True)
class Span:
    """All releases from `low` to `high`, both included."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    def within(self, other: Span) -> bool:
        return other.low <= self.low and self.high <= other.high

    def meets(self, other: Span) -> bool:
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Version:
    """A version of one to four numbers."""

    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Version:
        """Raises ValueError where `text` is not a version."""
        if not _VERSION.fullmatch(text):
            raise ValueError(f"'{text}' is not a version")
        return cls(tuple(int(part) for part in text.split(".")))

    @property
    def span(self) -> Span:
        """The releases this version may mean."""
        missing = _DEPTH - len(self.parts)
        return Span(self.parts + (0,) * missing, self.parts + (_BIG,) * missing)

    def __str__(self) -> str:
        return ".".join(str(part) for part in self.parts)


@dataclass(frozen=True)
class VersionRange:
    """A range as text: "10.0.0", "8.6" (all of 8.6), ">=8.4 <=10", "<10.8", ">=10.13? <=10.16.1".

    A question mark says that this bound is a guess: inside the range only the releases named by a bound
    without one are sure, all others are MAYBE.
    """

    span: Span
    sure: tuple[Span, ...]

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Raises ValueError where `text` is not a range."""
        low, high = (0,) * _DEPTH, (_BIG,) * _DEPTH
        named: list[Span] = []
        guessed = False
        bounds = text.split()
        if not bounds:
            raise ValueError("an empty version range")
        for bound in bounds:
            found = _BOUND.fullmatch(bound)
            if found is None:
                raise ValueError(f"'{bound}' in '{text}' is not a bound of a version range")
            span = Version.parse(found["version"]).span
            relation = found["relation"]
            if found["unsure"]:
                guessed = True
            elif relation in (None, ">=", "<="):
                named.append(span)
            if relation in (None, ">="):
                low = max(low, span.low)
            if relation in (None, "<="):
                high = min(high, span.high)
            if relation == ">":
                low = max(low, (*span.high[:-1], span.high[-1] + 1))
            if relation == "<":
                high = min(high, (*span.low[:-1], span.low[-1] - 1))
        if low > high:
            raise ValueError(f"the version range '{text}' is empty")
        whole = Span(low, high)
        return cls(whole, tuple(named) if guessed else (whole,))

    def fit(self, span: Span) -> Fit:
        if any(span.within(sure) for sure in self.sure):
            return Fit.YES
        return Fit.MAYBE if span.meets(self.span) else Fit.NO


def best_fit(fits: Iterable[Fit]) -> Fit:
    """The strongest of several alternatives; NO where there is none."""
    found = set(fits)
    return next((fit for fit in (Fit.YES, Fit.MAYBE) if fit in found), Fit.NO)
