"""Numbers, counts and lists in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

__all__ = ["and_more", "counted", "listed", "number", "percent", "share_of", "three_digits", "together"]


def counted(count: int, noun: str, plural: str = "") -> str:
    """ "1 node", "1,204 nodes"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(names: Iterable[object], shown: int = 3, quote: Callable[[object], str] = repr, between: str = ", ") -> str:
    """The first few of many: "'a', 'b', 'c' and 5 more"."""
    told = [quote(name) for name in names]
    return between.join(told[:shown]) + and_more(len(told), shown)


def together(names: Iterable[object]) -> str:
    """All of a few: "a, b and c"."""
    *most, last = map(str, names)
    return f"{', '.join(most)} and {last}" if most else last


def and_more(total: int, shown: int, noun: str = "") -> str:
    """What follows a list that was cut; empty where nothing was."""
    left = total - shown
    return f" and {counted(left, f'more {noun}') if noun else f'{left:,} more'}" if left > 0 else ""


def number(value: float) -> str:
    """Three digits are enough to recognise a number."""
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    mantissa, e, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa}{e}{int(exponent)}" if e else mantissa


def three_digits(value: float) -> str:
    """A number in a table: three digits, whatever its size; zero has no sign."""
    return f"{value + 0.0:.3g}"


def percent(share: float) -> str:
    if 0.0 < share < 5e-4:
        return f"{100 * share:.1g}%"
    if share >= 1e6:
        return f"{number(float(f'{share:.3g}'))} times"
    if share >= 10.0:
        return f"{share:,.0f} times"
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def share_of(share: float) -> str:
    """As in "3% of", "12 times", before what it is a share of."""
    if not math.isfinite(share):
        return "infinitely many times"
    return percent(share) if share >= 10.0 else f"{percent(share)} of"
