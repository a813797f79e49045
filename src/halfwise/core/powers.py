"""How values spread over the powers of two, from some of them: enough to see where a tensor lies in FP16."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LOOKED_AT", "powers"]

LOOKED_AT = 1 << 14  # values of a tensor, evenly picked
_BIAS, _EXPONENTS = 127, 256


def powers(array: NDArray[np.float32] | NDArray[Any]) -> dict[int, int]:
    """e: how many of the values looked at have 2^e <= |x| < 2^(e+1). Zeros and what is not finite are left out."""
    flat = array.ravel(order="K")
    step = max(-(-flat.size // LOOKED_AT), 1) | 1  # odd, so that no axis of even size is met in one place only
    bits = np.ascontiguousarray(flat[::step], dtype=np.float32).view(np.uint32) & 0x7FFFFFFF
    fields = np.bincount(bits >> 23, minlength=_EXPONENTS)
    fields[0] -= np.count_nonzero(bits == 0)
    return {int(e) - _BIAS: int(fields[e]) for e in np.flatnonzero(fields[: _EXPONENTS - 1])}
