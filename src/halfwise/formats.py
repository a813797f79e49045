"""The floating-point formats: their limits, rounding to them, and counts over the bits of an array."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["Counts", "Format", "count", "round_to"]

FloatArray = NDArray[np.float32]


class Format(Enum):
    """A storage format of a tensor. The value is its short name in plans and on the command line."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"

    @property
    def dtype(self) -> np.dtype[Any]:
        return _DTYPES[self.value]

    @property
    def max(self) -> float:
        """The largest finite value."""
        return _LIMITS[self.value][0]

    @property
    def smallest_normal(self) -> float:
        return _LIMITS[self.value][1]

    @property
    def smallest_subnormal(self) -> float:
        return _LIMITS[self.value][2]

    @property
    def unit_roundoff(self) -> float:
        """Half the distance from 1 to the next larger value."""
        return _LIMITS[self.value][3]


_DTYPES: dict[str, np.dtype[Any]] = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
}
_LIMITS = {
    "fp16": ((2 - 2.0**-10) * 2.0**15, 2.0**-14, 2.0**-24, 2.0**-11),
    "bf16": ((2 - 2.0**-7) * 2.0**127, 2.0**-126, 2.0**-133, 2.0**-8),
    "fp32": ((2 - 2.0**-23) * 2.0**127, 2.0**-126, 2.0**-149, 2.0**-24),
}


def round_to(array: NDArray[Any], fmt: Format) -> FloatArray:
    """Round to the nearest value of `fmt`, ties to even, overflow to infinity; the result is held in FP32."""
    wide = np.asarray(array, dtype=np.float32)
    if fmt is Format.FP32:
        return wide
    with np.errstate(over="ignore", invalid="ignore"):
        return wide.astype(fmt.dtype).astype(np.float32)


@dataclass(frozen=True)
class Counts:
    """How an FP32 array lies in a narrower format. Zero is neither subnormal nor underflow; a value counts once."""

    count: int
    subnormal: int
    underflow: int
    overflow: int
    nonfinite: int
    min: float
    max: float
    max_abs: float
    min_abs: float  # smallest magnitude that is not zero; 0 where there is none


def count(array: NDArray[Any], fmt: Format = Format.FP16) -> Counts:
    """Count the values of `array` that `fmt` holds badly.

    subnormal: smallest subnormal <= |x| < smallest normal; underflow: 0 < |x| < smallest subnormal;
    overflow: finite and |x| > the largest finite value; nonfinite: inf or NaN in the array itself.
    min, max, max_abs and min_abs speak of the finite values.
    """
    flat = np.asarray(array).reshape(-1)
    if flat.dtype != np.float32:
        flat = flat.astype(np.float32)
    if flat.size == 0:
        return Counts(0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)
    magnitude = np.abs(flat)
    top = float(magnitude.max())
    nonfinite = 0
    if not np.isfinite(top):
        finite = np.isfinite(flat)
        nonfinite = int(flat.size - np.count_nonzero(finite))
        kept = flat[finite]
        magnitude = np.abs(kept)
        if kept.size == 0:
            return Counts(int(flat.size), 0, 0, 0, nonfinite, 0.0, 0.0, 0.0, 0.0)
        top = float(magnitude.max())
    else:
        kept = flat
    overflow = int(np.count_nonzero(magnitude > fmt.max)) if top > fmt.max else 0
    small = magnitude[(magnitude < fmt.smallest_normal) & (magnitude > 0)]
    underflow = int(np.count_nonzero(small < fmt.smallest_subnormal))
    if small.size:
        least = float(small.min())
    elif top > 0:
        least = float(np.min(magnitude, where=magnitude > 0, initial=np.inf))
    else:
        least = 0.0
    return Counts(
        count=int(flat.size),
        subnormal=int(small.size) - underflow,
        underflow=underflow,
        overflow=overflow,
        nonfinite=nonfinite,
        min=float(kept.min()),
        max=float(kept.max()),
        max_abs=top,
        min_abs=least,
    )
