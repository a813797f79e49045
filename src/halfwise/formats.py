"""The floating-point formats: their limits, rounding to them, and counts over the bits of an array."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "Counter", "Counts", "Format", "count", "round_to"]

FloatArray = NDArray[np.float32]
BLOCK = 1 << 16  # values that are counted at a time, few enough for the processor's cache


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
    """How an array lies in a narrower format. Zero is neither subnormal nor underflow; a value counts once."""

    count: int
    subnormal: int
    underflow: int
    overflow: int
    nonfinite: int
    min: float
    max: float
    max_abs: float
    min_abs: float  # smallest magnitude that is not zero; 0 where there is none
    densest: int = field(default=0, compare=False)  # most values below the smallest normal, or zero, in one BLOCK


def count(array: NDArray[Any], fmt: Format = Format.FP16) -> Counts:
    """Count the values of `array` that `fmt` holds badly.

    subnormal: smallest subnormal <= |x| < smallest normal; underflow: 0 < |x| < smallest subnormal;
    overflow: finite and |x| > the largest finite value; nonfinite: inf or NaN in the array itself.
    min, max, max_abs and min_abs speak of the finite values.
    """
    flat = np.asarray(array).reshape(-1)
    if flat.dtype not in _BITS:
        flat = flat.astype(np.float32)
    counter = Counter(flat.dtype, fmt)
    counter.add(flat)
    return counter.counts()


class Counter:
    """Counts over bit patterns, block by block.

    Doubled as an unsigned integer, a pattern loses its sign and keeps the order of magnitudes, so that every limit is
    one comparison of integers, and whole blocks answer by their smallest and largest.
    """

    def __init__(self, dtype: np.dtype[Any], fmt: Format = Format.FP16) -> None:
        self.dtype = dtype
        self._unsigned, self._signed = (np.dtype(f"{kind}{dtype.itemsize}") for kind in "ui")
        self._smallest, self._normal, self._over, self._infinite = _edges(dtype, fmt)
        self._sign = 1 << (8 * dtype.itemsize - 1)
        self._count = self._tiny = self._below = self._zeros = self._overflow = self._nonfinite = self._densest = 0
        self._nearest, self._least = 2 * self._sign, 2 * self._sign  # doubled magnitudes: of all, of all but zero
        self._highest, self._lowest = -1, -1  # patterns: of the values above zero, of those below
        self._double = np.empty(0, self._unsigned)
        self._mask = np.empty(0, np.bool_)

    def add(self, flat: NDArray[Any]) -> None:
        """`flat` has one dimension and the type that was announced."""
        self._count += flat.size
        bits = flat.view(self._unsigned)
        if self._double.size < min(bits.size, BLOCK):
            self._double = np.empty(min(bits.size, BLOCK), self._unsigned)
            self._mask = np.empty(self._double.size, np.bool_)
        for start in range(0, bits.size, BLOCK):
            self._add(bits[start : start + BLOCK])

    def counts(self) -> Counts:
        if self._nearest == 2 * self._sign:  # nothing finite
            return Counts(self._count, 0, 0, 0, self._nonfinite, 0.0, 0.0, 0.0, 0.0)
        nearest = self._nearest >> 1
        high = self._value(self._highest if self._highest >= 0 else self._sign | nearest)
        low = self._value(self._lowest if self._lowest >= 0 else nearest)
        return Counts(
            count=self._count,
            subnormal=self._tiny - self._below,
            underflow=self._below - self._zeros,
            overflow=self._overflow,
            nonfinite=self._nonfinite,
            min=low,
            max=high,
            max_abs=max(abs(low), abs(high)),
            min_abs=self._value(self._least >> 1) if self._least < 2 * self._sign else 0.0,
            densest=self._densest,
        )

    def _add(self, bits: NDArray[Any]) -> None:
        double = self._double[: bits.size]
        np.add(bits, bits, out=double)  # the sign falls out
        top, nearest = int(np.maximum.reduce(double)), int(np.minimum.reduce(double))
        if top >= self._infinite:
            finite = bits[double < self._infinite]
            self._nonfinite += bits.size - finite.size
            if finite.size:
                self._add(finite)
            return
        if top > 2 * min(self._highest, self._lowest - self._sign):
            high, low = int(bits.view(self._signed).max()), int(bits.max())
            self._highest = max(self._highest, high)
            self._lowest = max(self._lowest, low if low >= self._sign else -1)
        self._nearest = min(self._nearest, nearest)
        if top >= self._over:
            self._overflow += int(np.count_nonzero(double >= self._over))
        if nearest < self._normal:
            mask = np.less(double, self._normal, out=self._mask[: bits.size])
            tiny = int(np.count_nonzero(mask))
            self._tiny += tiny
            self._densest = max(self._densest, tiny)
            if nearest < self._smallest:
                self._add_lost(double[mask] if tiny < bits.size // 2 else double)
                if self._least > self._normal:  # the tiny ones were all zeros
                    self._least = min(self._least, _least_above_zero(double))
        if nearest:
            self._least = min(self._least, nearest)

    def _add_lost(self, double: NDArray[Any]) -> None:
        """Of a block with values below the smallest subnormal, or zeros: all of those, and perhaps others."""
        self._below += int(np.count_nonzero(double < self._smallest))
        self._zeros += double.size - int(np.count_nonzero(double))
        self._least = min(self._least, _least_above_zero(double))

    def _value(self, pattern: int) -> float:
        return float(np.array(pattern, self._unsigned).view(self.dtype))


def _least_above_zero(double: NDArray[Any]) -> int:
    """The least pattern but zero's; one beyond all where there are only zeros."""
    return int((double - double.dtype.type(1)).min()) + 1  # zero becomes the largest


_BITS = tuple(np.dtype(name) for name in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16))


@cache
def _edges(dtype: np.dtype[Any], fmt: Format) -> tuple[Any, Any, Any, Any]:
    """Doubled patterns: the first not below the smallest subnormal, the first normal, the first over, infinity."""

    def pattern(value: float, *, above: bool = False) -> int:
        with np.errstate(over="ignore"):
            stored = np.array(value, dtype=np.float64).astype(dtype)
        bits = int(stored.view(f"u{dtype.itemsize}"))
        found = float(stored)
        return 2 * (bits + (found <= value if above else found < value))

    kind = np.dtype(f"u{dtype.itemsize}").type
    edges = (pattern(fmt.smallest_subnormal), pattern(fmt.smallest_normal), pattern(fmt.max, above=True))
    return (*(kind(edge) for edge in edges), kind(pattern(np.inf)))
