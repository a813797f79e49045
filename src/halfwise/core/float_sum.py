"""Adds floats alike on every Python.

`sum` carries the digits that it loses from Python 3.12 on, so that what two numbers tie on fell otherwise there. What
comes in no order, as from a set, is for `math.fsum`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add

__all__ = ["float_sum"]


def float_sum(values: Iterable[float]) -> float:
    """Their sum from left to right, rounded at each step."""
    return reduce(add, values, 0.0)
