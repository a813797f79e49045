"""What masked places of an output hold: one number, far larger than any answer, as in `Where(mask, logits, -10000)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import pieces

__all__ = ["filler_of"]

Array = NDArray[Any]

FAR = 8.0  # times the largest other magnitude
LEAST = 2  # places that hold it: a single one may be an answer


def filler_of(arrays: Sequence[Array]) -> float | None:
    """The same in all answers; None where there is none, or nothing beside it."""
    largest = max((_largest(array) for array in arrays), key=abs, default=0.0)
    if largest == 0.0:
        return None
    if sum(_places(array, largest) for array in arrays) < LEAST:
        return None
    rest = max(abs(_largest(array, beside=largest)) for array in arrays)
    return largest if 0.0 < FAR * rest <= abs(largest) else None


def _largest(array: Array, beside: float | None = None) -> float:
    """The finite value of the largest magnitude, but for one; 0 where there is none."""
    found = 0.0
    for piece in pieces(array):
        known = piece[np.isfinite(piece)]
        known = known if beside is None else known[known != array.dtype.type(beside)]
        if known.size:
            found = max(found, float(known.max()), float(known.min()), key=abs)
    return found


def _places(array: Array, value: float) -> int:
    return sum(int(np.count_nonzero(piece == array.dtype.type(value))) for piece in pieces(array))
