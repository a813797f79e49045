"""The axis that every picture of the report shares: magnitudes on a logarithmic scale, and what FP16 does in each zone.

Positions are shares of the axis, 0 at its left end; what lies beyond an end is drawn at that end with an arrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from halfwise.core.formats import Format

__all__ = ["HIGH", "LOW", "TICKS", "ZONES", "Bar", "Zone", "bar", "place", "zone_of"]

LOW, HIGH = -36, 24  # powers of two at the ends
_FP16 = Format.FP16
_BORDERS = (LOW, math.log2(_FP16.smallest_subnormal), math.log2(_FP16.smallest_normal), math.log2(_FP16.max), HIGH)


@dataclass(frozen=True)
class Zone:
    """A part of the axis. `key` names its colour and pattern, `letter` stands where colour is not enough."""

    key: str
    letter: str
    title: str
    meaning: str
    start: float
    end: float


@dataclass(frozen=True)
class Bar:
    """The magnitudes of one tensor on the axis; `below` and `above` say that it goes on past an end."""

    start: float
    end: float
    below: bool
    above: bool


def place(magnitude: float) -> float:
    """Where a magnitude lies, from 0 to 1."""
    if magnitude <= 0:
        return 0.0
    return min(max((math.log2(magnitude) - LOW) / (HIGH - LOW), 0.0), 1.0) if math.isfinite(magnitude) else 1.0


def bar(low: float, high: float) -> Bar | None:
    """The bar from the smallest magnitude to the largest; None where everything is zero."""
    if high <= 0:
        return None
    low = low if low > 0 else high
    return Bar(place(low), place(high), low < 2.0**LOW, high > 2.0**HIGH)


def zone_of(over: float, subnormal: float, lost: float, nonfinite: float) -> str:
    """The key of the worst zone that any value of a tensor is in, from the share of its values in each."""
    if nonfinite:
        return "nonfinite"
    if over:
        return "over"
    if lost:
        return "lost"
    return "sub" if subnormal else "normal"


def _tick_label(exponent: int) -> str:
    return "1" if exponent == 0 else f"1e{exponent}" if abs(exponent) > 3 else f"{10.0**exponent:g}"


def _zone(index: int, key: str, letter: str, title: str, meaning: str) -> Zone:
    start, end = ((_BORDERS[i] - LOW) / (HIGH - LOW) for i in (index, index + 1))
    return Zone(key, letter, title, meaning, start, end)


ZONES = (
    _zone(0, "lost", "L", "lost", "below 6e-8: FP16 has no such number; it becomes 0 or the smallest one"),
    _zone(1, "sub", "S", "subnormal", "6e-8 to 6.1e-5: kept with fewer and fewer digits; some engines make it 0"),
    _zone(2, "normal", "N", "normal", "6.1e-5 to 65,504: kept to 3 to 4 decimal digits"),
    _zone(3, "over", "O", "overflow", "above 65,504: becomes infinite"),
)
TICKS = tuple((place(10.0**exponent), _tick_label(exponent)) for exponent in range(-9, 8, 3))
