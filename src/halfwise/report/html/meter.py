"""Errors on one logarithmic axis whose landmark is the tolerance: the picture of before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from halfwise.report.numbers import number

__all__ = ["Mark", "Meter", "meter"]

_MOST, _LEAST = 6, -6  # powers of ten times the allowed error that the axis may span
_ROOM_FOR_INFINITY = 0.12  # of the axis, at its right end


@dataclass(frozen=True)
class Mark:
    """A value of error over allowed error; `clear` says that it is within."""

    title: str
    ratio: float
    place: float
    clear: bool
    text: str


@dataclass(frozen=True)
class Meter:
    """`allowed` is the tolerance's place; `infinite` where the part for values that are not finite begins, if any."""

    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    allowed: float
    infinite: float | None


def meter(ratios: Sequence[tuple[str, float]]) -> Meter:
    finite = [ratio for _, ratio in ratios if math.isfinite(ratio) and ratio > 0]
    low = max(min((math.floor(math.log10(x) - 0.2) for x in finite), default=-1), _LEAST)
    high = min(max((math.ceil(math.log10(x) + 0.1) for x in finite), default=1), _MOST)
    low, high = min(low, -1), max(high, 1)
    endless = any(math.isinf(ratio) for _, ratio in ratios)
    width = 1.0 - _ROOM_FOR_INFINITY if endless else 1.0

    def place(ratio: float) -> float:
        if math.isinf(ratio):
            return 1.0 - _ROOM_FOR_INFINITY / 2
        if ratio <= 0:
            return 0.0
        return min(max((math.log10(ratio) - low) / (high - low), 0.0), 1.0) * width

    return Meter(
        marks=tuple(Mark(title, ratio, place(ratio), ratio <= 1, _text(ratio)) for title, ratio in ratios),
        ticks=tuple((place(10.0**e), _tick(e)) for e in range(low, high + 1)),
        allowed=place(1.0),
        infinite=width if endless else None,
    )


def _tick(exponent: int) -> str:
    return "allowed" if exponent == 0 else f"{number(10.0**exponent)}×"


def _text(ratio: float) -> str:
    return "not finite" if math.isinf(ratio) else f"{number(ratio)} × allowed"
