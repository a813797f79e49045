"""A quantised weight as an FP32 one, made whenever it is read: numbers less zero points, times scales."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.weights import DerivedTensor, Making, Part, convert_weight, stored_tensor
from halfwise.precision.rewrite import Weight

__all__ = ["FP8", "LARGE_BYTES", "Layout", "UnpackedTensor", "numbers_of"]

Array = NDArray[Any]

FP8 = (ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E4M3FNUZ, ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT8E5M2FNUZ)
LARGE_BYTES = 1 << 20  # of a weight in FP32: smaller ones stay with the runtime's kernel
_AT_ONCE = 1 << 17  # numbers that are made together: they stay in the processor's cache
_TOGETHER = {2: np.complex128, 4: np.complex64, 8: np.float32}  # what holds all the numbers of a byte in FP32


@dataclass(frozen=True)
class Layout:
    """Rows of numbers, the lowest bits first. A scale is for a block of a row, or `down` a column."""

    rows: int
    columns: int
    block: int
    bits: int
    middle: float = 0.0  # the zero point of all, where none is given
    signed: bool = False
    floats: ir.DataType | None = None
    down: bool = False

    @property
    def scales(self) -> tuple[int, int]:
        """How many there are."""
        over, along = (self.rows, self.columns)
        return (over // self.block, along) if self.down else (over, along // self.block)

    @property
    def blocks(self) -> tuple[int, int, int]:
        """What some rows are as blocks of one scale each."""
        return (
            (-1, self.block if self.scales[0] > 1 else 1, self.columns)
            if self.down
            else (-1, self.columns // self.block, self.block)
        )

    def part(self, each: Array, first: int, last: int) -> Array:
        """Of scales or zero points those of some rows, beside their blocks."""
        if each.size == 1:
            return each.reshape(1, 1, 1)
        if not self.down:
            return each[first:last, :, None]
        return each[first // self.block : -(-last // self.block), None, :] if len(each) > 1 else each[None]

    @property
    def fits(self) -> bool:
        wide = self.columns * self.bits % 8 == 0 and self.block * self.bits % 8 == 0
        whole = (self.rows if self.down else self.columns) % max(self.block, 1) == 0
        return self.bits in _TOGETHER and self.block > 1 and wide and whole


@dataclass(frozen=True)
class Steps:
    """What the numbers in each byte are, and what is left to do with them."""

    numbers: Array
    changes: Sequence[tuple[np.ufunc, Array]]


class UnpackedTensor(DerivedTensor):
    """A weight `(v - z) s`, with its scales in a format; scales and `zeros` are as many as the layout says, or one."""

    def __init__(
        self,
        words: ir.TensorProtocol,
        scales: Weight,
        zeros: ir.TensorProtocol | None,
        at: Layout,
        shape: Sequence[int],
    ) -> None:
        together = at.rows // shape[0]  # rows along the first axis

        def begin() -> Making:
            packed = _bytes(words).reshape(at.rows, -1)
            recipe = self.steps()
            numbers: Array = recipe.numbers.view(_TOGETHER[at.bits]).reshape(256)
            step = math.lcm(at.block if not at.down else 1, 8 // at.bits)

            def whole(first: int, left: int, into: Array) -> None:
                """From that row and column on; it begins and ends with a block, and with a byte."""
                last, right = first + into.shape[0], left + into.shape[1]
                given = packed[first:last, left * at.bits // 8 : right * at.bits // 8]
                np.take(numbers, given, out=into.view(numbers.dtype), mode="clip")
                for by, each in recipe.changes:
                    if each.size == 1:
                        by(into, each, out=into)
                    elif at.down:
                        of = np.arange(first, last) // at.block if len(each) > 1 else slice(None)
                        by(into, each[of, left:right], out=into)
                    else:
                        blocks = into.reshape(into.shape[0], -1, at.block)
                        by(blocks, each[first:last, left // at.block : right // at.block, None], out=blocks)

            def make(part: Part, into: Array) -> None:
                along, columns = (*part, slice(None))[:2] if len(shape) == 2 else (part[0], slice(None))
                begins, ends, _ = along.indices(shape[0])
                first, last, flat = begins * together, ends * together, into.reshape(-1, into[0].size // together)
                left, right, _ = columns.indices(at.columns)
                start, stop = left // step * step, -(-right // step) * step
                several = max(1, _AT_ONCE // (stop - start))
                for row in range(first, last, several):
                    kept = flat[row - first : min(row + several, last) - first]
                    cut = (start, stop) != (left, right) or not kept.flags.c_contiguous
                    room = np.empty((len(kept), stop - start), np.float32) if cut else kept
                    whole(row, start, room)
                    if cut:
                        kept[...] = room[:, left - start : right - start]

            return make

        known = hashlib.sha256(f"{at} {scales.fmt}".encode())
        for tensor in (scales.tensor, zeros):
            known.update(b"" if tensor is None else stored_tensor(tensor).tobytes())
        super().__init__(words, known.digest(), begin, shape=shape)
        self.layout, self._scales, self._zeros = at, scales, zeros

    def steps(self) -> Steps:
        changes = [(np.subtract, _zeros(self._zeros, self.layout)), (np.multiply, _factors(self._scales, self.layout))]
        found = _values(self.layout)
        while changes and changes[0][1].size == 1:
            by, each = changes.pop(0)
            found = by(found, each)
        return Steps(np.ascontiguousarray(found), changes)

    @cached_property
    def most(self) -> float:
        """No finite value is beyond it."""
        largest = 2.0**self.layout.bits
        if self.layout.floats is not None:
            values = np.abs(_values(self.layout))
            largest = float(values[np.isfinite(values)].max())
        return float(np.abs(_factors(self._scales, self.layout)).max()) * largest


def _bytes(words: ir.TensorProtocol) -> NDArray[np.uint8]:
    stored = stored_tensor(words)
    if stored.dtype.bitwidth < 8:
        return np.frombuffer(stored.tobytes(), np.uint8)
    return np.ascontiguousarray(stored.numpy()).view(np.uint8)


def _values(at: Layout) -> Array:
    """Of each byte."""
    if at.floats is not None:
        return np.arange(256, dtype=np.uint8).view(at.floats.numpy()).astype(np.float32)[:, None]
    shifts = np.arange(0, 8, at.bits, dtype=np.uint8)
    found = ((np.arange(256, dtype=np.uint8)[:, None] >> shifts) & ((1 << at.bits) - 1)).astype(np.float32)
    if at.signed:
        found -= (found >= 1 << (at.bits - 1)) * np.float32(1 << at.bits)
    return found


def numbers_of(weight: Weight) -> Array:
    """What few numbers are in their format, in FP32."""
    given = stored_tensor(weight.tensor)
    found = np.asarray(given.numpy()) if weight.fmt is None else convert_weight(given, weight.fmt)
    return found.astype(np.float32)


def _factors(scales: Weight, at: Layout) -> Array:
    return numbers_of(scales).reshape((1, 1) if scales.tensor.size == 1 else at.scales)


def _zeros(zeros: ir.TensorProtocol | None, at: Layout) -> Array:
    """One for all where none are given; as several in a byte each row begins with one."""
    if zeros is None:
        return np.full((1, 1), at.middle, np.float32)
    given = np.asarray(stored_tensor(zeros).numpy())
    if given.size == 1 or given.dtype != np.uint8 or at.bits == 8:
        return given.astype(np.float32).reshape((1, 1) if given.size == 1 else at.scales)
    shifts = np.arange(0, 8, at.bits, dtype=np.uint8)
    numbers = (given.reshape(at.rows, -1, 1) >> shifts) & ((1 << at.bits) - 1)
    return numbers.reshape(at.rows, -1)[:, : at.scales[1]].astype(np.float32)
