"""The weight histogram as a picture: one bar for each power of two, its height the logarithm of the count."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halfwise.core.wording import counted
from halfwise.report.axis import HIGH, LOW
from halfwise.report.html.histogram import WeightHistogram

__all__ = ["Column", "Columns", "columns"]

_BORDERS = (("lost", -24), ("sub", -14), ("normal", 16))


@dataclass(frozen=True)
class Column:
    """A bar: where it starts, how wide and high it is (shares of the plot), its zone and its words."""

    x: float
    width: float
    height: float
    zone: str
    text: str


@dataclass(frozen=True)
class Columns:
    bars: tuple[Column, ...]
    ticks: tuple[tuple[float, str], ...]  # heights of round counts


def columns(histogram: WeightHistogram) -> Columns:
    """Powers of two beyond the ends of the axis are gathered at its ends."""
    gathered: dict[int, int] = {}
    for exponent, count in histogram.bins.items():
        if exponent < 128:  # the field of infinities and NaN is counted apart
            key = min(max(exponent, LOW), HIGH - 1)
            gathered[key] = gathered.get(key, 0) + count
    most = max(gathered.values(), default=1)
    top = math.log10(most) + 1 if most > 0 else 1.0

    def height(count: int) -> float:
        return (math.log10(count) + 0.5) / top if count else 0.0

    width = 1.0 / (HIGH - LOW)
    return Columns(
        tuple(
            Column((exponent - LOW) * width, width, height(count), _zone(exponent), _text(exponent, count))
            for exponent, count in sorted(gathered.items())
        ),
        tuple((height(10**e), _count_words(10**e)) for e in range(int(math.log10(most)) + 1)),
    )


def _zone(exponent: int) -> str:
    return next((key for key, end in _BORDERS if exponent < end), "over")


def _text(exponent: int, count: int) -> str:
    if exponent == LOW:
        return f"{counted(count, 'weight')} below 2^{LOW + 1} ({2.0 ** (LOW + 1):.1e})"
    if exponent == HIGH - 1:
        return f"{counted(count, 'weight')} of 2^{exponent} ({2.0**exponent:.1e}) and above"
    above = f"2^{exponent + 1} ({2.0 ** (exponent + 1):.3g})"
    return f"{counted(count, 'weight')} from 2^{exponent} ({2.0**exponent:.3g}) to {above}"


def _count_words(count: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count // size}{unit}"
    return str(count)
