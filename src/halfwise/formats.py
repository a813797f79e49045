"""The floating-point formats: their limits, and rounding to them."""

from __future__ import annotations

from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["Format", "round_to"]

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
