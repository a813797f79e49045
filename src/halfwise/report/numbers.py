"""Numbers for people: sensible digits, units, and shares that are never rounded to none."""

from __future__ import annotations

import math

__all__ = ["amount", "byte_size", "factor", "number", "percent", "seconds"]

_UNITS = ("bytes", "KB", "MB", "GB", "TB")


def number(value: float, digits: int = 3) -> str:
    """Three digits; thousands grouped, and powers of ten only where plain digits would be unreadable."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 1e7 or magnitude < 1e-3:
        text = f"{value:.{digits - 1}e}"
        mantissa, _, exponent = text.partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    if magnitude >= 999.5:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.{digits}g}".replace("-", "−")


def amount(value: int) -> str:
    return f"{value:,}"


def percent(value: float) -> str:
    """A share; a little is never shown as nothing, and nearly all never as all."""
    if value == 0:
        return "0%"
    if value < 1e-4:
        return "<0.01%"
    if 0.9999 < value < 1:
        return ">99.99%"
    return f"{value:.0%}" if value >= 0.1 else f"{value * 100:.2g}%"


def factor(value: float) -> str:
    """How many times: "21 times", "8.2 times"."""
    if not math.isfinite(value):
        return "infinitely many times"
    return f"{value:,.0f} times" if value >= 10 else f"{value:.2g} times"


def byte_size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"


def seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min"
