"""Distinct numbers of small arrays, of which there are many: `numpy.unique` looks at each for masks and takes long."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct", "numbered"]

Number = TypeVar("Number", bound=np.generic)


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """Each once, in order."""
    flat = np.sort(values, axis=None)
    return flat[_first(flat)]


def numbered(values: NDArray[Number]) -> tuple[NDArray[Number], NDArray[np.int64]]:
    """Each once, in order; and where each of the values, one after the other, is among them."""
    flat = values.reshape(-1)
    order = np.argsort(flat, kind="stable")
    flat = flat[order]
    first = _first(flat)
    number = np.empty(flat.size, np.int64)
    number[order] = np.cumsum(first) - 1
    return flat[first], number


def _first(flat: NDArray[Any]) -> NDArray[np.bool_]:
    """Of numbers in order, which differ from the one before."""
    found = np.ones(flat.size, bool)
    np.not_equal(flat[1:], flat[:-1], out=found[1:])
    return found
