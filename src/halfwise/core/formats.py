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

_FEW = 256  # values up to which NumPy's own conversion is as fast
_BLOCK = 1 << 15  # values that are rounded at a time, few enough for the processor's cache
_EXPONENT = 0xFF << 23  # FP32's, as it lies in the bits
_LEAST, _MOST = (127 - 14) << 23, (127 + 16) << 23  # exponents of FP16's smallest normal, and of what overflows


def round_to(array: NDArray[Any], fmt: Format) -> FloatArray:
    """Round to the nearest value of `fmt`, ties to even, overflow to infinity; the result is held in FP32."""
    wide = np.asarray(array, dtype=np.float32)
    if fmt is Format.FP32:
        return wide
    if fmt is Format.FP16 and wide.size > _FEW:
        return _to_half(wide)
    with np.errstate(over="ignore", invalid="ignore"):
        return wide.astype(fmt.dtype).astype(np.float32)


def _to_half(wide: FloatArray) -> FloatArray:
    """FP16's rounding by FP32 additions alone; NumPy's conversion takes 70 ns for each subnormal result.

    1.5 * 2^(e+13) has a last place of 2^(e-10), FP16's spacing at 2^e: adding it rounds, taking it away is exact.
    """
    rounded = np.empty_like(wide, order="C")
    source, target = wide.reshape(-1), rounded.reshape(-1)
    room = np.empty(min(source.size, _BLOCK), np.float32)
    with np.errstate(invalid="ignore"):
        for start in range(0, source.size, _BLOCK):
            values, kept = source[start : start + _BLOCK], target[start : start + _BLOCK]
            large = room[: values.size]
            bits = large.view(np.uint32)
            np.bitwise_and(values.view(np.uint32), _EXPONENT, out=bits)
            np.minimum(
                np.maximum(bits, _LEAST, out=bits), _MOST, out=bits
            )  # all subnormals are spaced alike; what is larger overflows
            np.add(bits, 13 << 23, out=bits)
            np.multiply(large, 1.5, out=large)
            np.add(values, large, out=kept)
            np.subtract(kept, large, out=kept)
            np.copysign(kept, values, out=kept)
            over = np.greater(np.abs(kept, out=large), Format.FP16.max)
            if over.any():
                kept[over] = np.copysign(np.inf, kept[over])
    return rounded
