"""Numbers in sentences."""

from __future__ import annotations

__all__ = ["counted", "number", "percent"]


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def number(value: float) -> str:
    """Three digits are enough to recognise a number."""
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    mantissa, e, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa}{e}{int(exponent)}" if e else mantissa


def percent(share: float) -> str:
    if 0.0 < share < 5e-4:
        return f"{100 * share:.1g}%"
    if share >= 10.0:
        return f"{share:,.0f} times"
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
