"""How the values of an array lie in a narrower format: counts over their bit patterns."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from halfwise.core.formats import Format

__all__ = ["BLOCK", "Counter", "Counts", "count", "worst_counts"]

BLOCK = 1 << 16  # values of which the tiny ones are counted together, to see whether they stand close together
_CHUNK = 1 << 20  # bytes that are swept together
_LINE = 1 << 12  # values that are looked at together for what is nearest to zero
_ROW = 1 << 10  # values that are counted in eight bytes


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
    densest: int = field(default=0, compare=False)  # most below the smallest normal, or zero, in one BLOCK of lines


def count(array: NDArray[Any], fmt: Format = Format.FP16) -> Counts:
    """Count the values of `array` that `fmt` holds badly.

    subnormal: smallest subnormal <= |x| < smallest normal; underflow: 0 < |x| < smallest subnormal;
    overflow: finite and |x| > the largest finite value; nonfinite: inf or NaN in the array itself.
    min, max, max_abs and min_abs speak of the finite values.
    """
    flat = np.asarray(array).ravel(order="K")  # as it lies
    if flat.dtype not in _BITS:
        flat = flat.astype(np.float32)
    counter = Counter(flat.dtype, fmt)
    counter.add(flat)
    return counter.counts()


def worst_counts(one: Counts, other: Counts) -> Counts:
    """Of two arrays, each number as it is worse."""
    if not one.count or not other.count:
        return one if one.count else other
    most = {each.name: max(getattr(one, each.name), getattr(other, each.name)) for each in fields(Counts)}
    smallest = min((each.min_abs for each in (one, other) if each.min_abs), default=0.0)
    return Counts(**{**most, "min": min(one.min, other.min), "min_abs": smallest})


class Counter:
    """Counts over bit patterns, many at a time.

    Doubled as an unsigned integer, a pattern loses its sign and keeps the order of magnitudes, so that every limit is
    one comparison of integers. Threads that count wait for each other between two calls of numpy: `_sweep` makes five
    for a chunk that fits into the processor's cache, and looks closer only where these say that there is something.
    """

    def __init__(self, dtype: np.dtype[Any], fmt: Format = Format.FP16) -> None:
        self.dtype = dtype
        self._unsigned, self._signed = (np.dtype(f"{kind}{dtype.itemsize}") for kind in "ui")
        self._smallest, self._normal, self._over, self._infinite = _edges(dtype, fmt)
        self._sign = 1 << (8 * dtype.itemsize - 1)
        self._count = self._tiny = self._below = self._zeros = self._overflow = self._nonfinite = self._densest = 0
        self._nearest, self._least = 2 * self._sign, 2 * self._sign  # doubled magnitudes: of all, of all but zero
        self._highest, self._lowest = -1, -1  # patterns: of the values above zero, of those below

    def add(self, flat: NDArray[Any]) -> None:
        """`flat` has one dimension and the type that was announced."""
        bits = flat.view(self._unsigned)
        self._count += bits.size
        if bits.nbytes <= _CHUNK:
            for start in range(0, bits.size, BLOCK):
                self._look_at(bits[start : start + BLOCK])
            return
        step = _CHUNK // self.dtype.itemsize
        chunks, lines = bits.size // step * step, bits.size // _LINE * _LINE
        self._sweep(bits[:chunks].reshape(-1, step))
        self._sweep(bits[chunks:lines].reshape(1, -1))
        self._look_at(bits[lines:])

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

    def _sweep(self, chunks: NDArray[Any]) -> None:
        """Chunks of whole lines, one a row."""
        rows, width = chunks.shape
        if not chunks.size:
            return
        double, mask = _SCRATCH.double(self._unsigned, width), _SCRATCH.mask(width)
        lines, eighths = double.reshape(-1, _LINE), mask.view(np.uint64).reshape(-1, _LINE // _ROW, _ROW // 8)
        tops = np.empty(rows, self._unsigned)
        nearest = np.empty((rows, len(lines)), self._unsigned)
        tiny = np.empty((rows, *eighths.shape[:2]), np.uint64)
        for row in range(rows):
            np.add(chunks[row], chunks[row], out=double)  # the sign falls out
            tops[row] = np.maximum.reduce(double)
            np.minimum.reduce(lines, axis=1, out=nearest[row])
            np.less(double, self._normal, out=mask)
            # True is a byte of 1: eight columns are added at once as the bytes of an integer, of which none runs over.
            np.add.reduce(eighths, axis=2, out=tiny[row])
        large = tops >= self._over
        for row in map(int, np.flatnonzero(large)):
            for start in range(0, width, BLOCK):
                self._look_at(chunks[row, start : start + BLOCK])
        usual = np.flatnonzero(~large)
        if usual.size:
            self._add_extremes(chunks, usual, tops)
            self._add_tiny(tiny[usual])
            self._add_nearest(chunks.reshape(-1, _LINE), usual, nearest)

    def _add_extremes(self, chunks: NDArray[Any], rows: NDArray[Any], tops: NDArray[Any]) -> None:
        """Which of the largest magnitudes are above zero, and which below: told by few chunks."""
        for row in rows[np.argsort(tops[rows])[::-1]]:
            if int(tops[row]) <= 2 * min(self._highest, self._lowest - self._sign):
                return
            self._add_extremes_of(chunks[row])

    def _add_extremes_of(self, bits: NDArray[Any]) -> None:
        high, low = int(bits.view(self._signed).max()), int(bits.max())
        self._highest = max(self._highest, high)
        self._lowest = max(self._lowest, low if low >= self._sign else -1)

    def _add_tiny(self, eighths: NDArray[np.uint64]) -> None:
        """Of each row of lines the number of values below the smallest normal, or zero, in eighths."""
        if eighths.any():
            lines = eighths.view(np.uint8).reshape(len(eighths), -1, 8 * _LINE // _ROW).sum(axis=2, dtype=np.int64)
            blocks = np.add.reduceat(lines, range(0, lines.shape[1], BLOCK // _LINE), axis=1)
            self._tiny += int(lines.sum())
            self._densest = max(self._densest, int(blocks.max()))

    def _add_nearest(self, lines: NDArray[Any], rows: NDArray[Any], nearest: NDArray[Any]) -> None:
        """What lies nearest to zero in each line of these rows; lines with lost values are looked at."""
        numbers = (rows[:, None] * nearest.shape[1] + np.arange(nearest.shape[1])).reshape(-1)
        found = nearest[rows].reshape(-1)
        self._nearest = min(self._nearest, int(found.min()))
        lost = found < self._smallest
        if not lost.all():
            self._least = min(self._least, int(found[~lost].min()))
        several = BLOCK // _LINE
        numbers = numbers[lost]
        for start in range(0, numbers.size, several):
            double = lines[numbers[start : start + several]]
            self._add_lost(np.add(double, double, out=double))

    def _look_at(self, bits: NDArray[Any]) -> None:
        """Any values, few of them."""
        double = bits + bits
        finite = double < self._infinite
        if not finite.all():
            self._nonfinite += bits.size - int(np.count_nonzero(finite))
            bits, double = bits[finite], double[finite]
        if not bits.size:
            return
        self._add_extremes_of(bits)
        self._overflow += int(np.count_nonzero(double >= self._over))
        tiny, nearest = int(np.count_nonzero(double < self._normal)), int(double.min())
        self._tiny += tiny
        self._densest = max(self._densest, tiny)
        self._nearest = min(self._nearest, nearest)
        if nearest < self._smallest:
            self._add_lost(double)
        else:
            self._least = min(self._least, nearest)

    def _add_lost(self, double: NDArray[Any]) -> None:
        """Values of which some are below the smallest subnormal, or zero."""
        self._below += int(np.count_nonzero(double < self._smallest))
        self._zeros += double.size - int(np.count_nonzero(double))
        # The least but zero, which wraps to the largest; one beyond all where there are only zeros.
        self._least = min(self._least, int((double - self._unsigned.type(1)).min()) + 1)

    def _value(self, pattern: int) -> float:
        return float(np.array(pattern, self._unsigned).view(self.dtype))


class _Scratch(threading.local):
    """Room to count in, kept by each thread: memory is slow when it is first written."""

    def __init__(self) -> None:
        self._double = np.empty(0, np.uint64)
        self._mask = np.empty(0, np.bool_)

    def double(self, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
        eights = size * dtype.itemsize // 8
        if self._double.size < eights:
            self._double = np.empty(eights, np.uint64)
        return self._double[:eights].view(dtype)

    def mask(self, size: int) -> NDArray[np.bool_]:
        if self._mask.size < size:
            self._mask = np.empty(size, np.bool_)
        return self._mask[:size]


_SCRATCH = _Scratch()
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
