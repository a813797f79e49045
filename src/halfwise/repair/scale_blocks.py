"""What the elements of a constant are, row by row and column by column: of a large one in parts, and once."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import in_blocks
from halfwise.model.model import Model
from halfwise.model.weight_facts import fact_of_weight
from halfwise.model.weights import stored_tensor

__all__ = ["LARGE", "HeldBlocks", "LargeBlocks", "Lines", "blocks", "blocks_of", "is_large", "is_large_in", "stored"]

Array = NDArray[Any]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_BLOCK = 1 << 20  # elements that are looked at together
_CACHED = 1 << 18  # elements that are worked on at once: of fewer, threads wait for each other
LARGE = 1 << 18  # elements; of fewer, each block is held
_MOST = 1 << 20  # elements read of constants whose blocks are held: each takes 300 bytes in the table of a choice
_FEW = 1 << 10  # elements whose blocks are held even so


class Lines(NamedTuple):
    """Of each row, or of each column: the sum of mean squares, the largest magnitude, the sum of magnitudes."""

    square: Floats
    peak: Floats
    total: Floats


class _Sides(NamedTuple):
    rows: Lines
    columns: Lines


_SEEN: WeakKeyDictionary[ir.TensorProtocol, dict[tuple[int, ...], Any]] = WeakKeyDictionary()  # by the axes kept


def stored(value: ir.Value | None) -> Array | None:
    """An initializer's elements in the type that the file has: none is widened for a look at the shape."""
    if value is None or not value.is_initializer() or value.const_value is None:
        return None
    return np.asarray(stored_tensor(value.const_value).numpy())


def is_large(array: Array) -> bool:
    return array.size > LARGE


def is_large_in(model: Model) -> Callable[[Array], bool]:
    """The same of a constant in a model: where there are many, or many readers, of each that is not small."""
    given = [(each.const_value.size, len(each.uses())) for each in model.initializers() if each.const_value is not None]
    least = LARGE if sum(size * readers for size, readers in given if size <= LARGE) <= _MOST else min(LARGE, _FEW)
    return lambda array: array.size > least


def blocks_of(value: ir.Value, keep: tuple[int, ...]) -> tuple[Floats, Floats, Floats]:
    """The same as `blocks` of an initializer; of a large one it is computed once."""
    array, tensor = stored(value), value.const_value
    assert array is not None and tensor is not None
    if not is_large(array):
        return blocks(array, keep)
    known = _SEEN.setdefault(stored_tensor(tensor), {})
    if keep not in known:
        known[keep] = blocks(array, keep)
    found: tuple[Floats, Floats, Floats] = known[keep]
    return found


def blocks(array: Array, keep: tuple[int, ...]) -> tuple[Floats, Floats, Floats]:
    """Over all axes but those kept: mean square, largest magnitude, and sum of magnitudes."""
    over = tuple(axis for axis in range(array.ndim) if axis not in keep)
    if not array.size:
        shape = tuple(array.shape[axis] for axis in keep)
        return np.zeros(shape), np.zeros(shape), np.zeros(shape)
    if array.size <= _BLOCK or not over:
        sizes = np.abs(array.astype(np.float64))
        return (sizes**2).mean(axis=over), sizes.max(axis=over), sizes.sum(axis=over)
    # The parts of a large one lie together in memory, where its first axis can be cut into some.
    cut = 0 if array.size <= _BLOCK * array.shape[0] else max(over, key=lambda axis: array.shape[axis])

    def part(start: int, stop: int) -> tuple[Floats, Floats, Floats]:
        index = (slice(None),) * cut + (slice(start, stop),)
        sizes = array[index].astype(np.float64)
        np.abs(sizes, out=sizes)
        peak, total = sizes.max(axis=over), sizes.sum(axis=over)
        return np.square(sizes, out=sizes).sum(axis=over), peak, total

    step = max(1, _BLOCK * array.shape[cut] // array.size)
    squares, peaks, sums = zip(*in_blocks(part, array.shape[cut], step), strict=True)
    count = array.size // max(1, math.prod(array.shape[axis] for axis in keep))
    if cut in keep:
        return np.concatenate(squares) / count, np.concatenate(peaks), np.concatenate(sums)
    return np.sum(squares, axis=0) / count, np.max(peaks, axis=0), np.sum(sums, axis=0)


class HeldBlocks(NamedTuple):
    """The blocks of a weight, outputs by inputs: mean square, largest magnitude, sum of magnitudes."""

    square: Floats
    peak: Floats
    total: Floats

    @classmethod
    def of(cls, array: Array, out: int, into: int) -> HeldBlocks:
        return cls(*(each if out < into else each.T for each in blocks(array, (out, into))))

    def heard(self, cap: Floats) -> Lines:
        """Of each row, its column j times cap[j]: what inputs of these magnitudes make of each output."""
        return Lines(self.square @ cap**2, (self.peak * cap).max(axis=1, initial=0.0), self.total @ cap)


@dataclass(frozen=True, eq=False)
class LargeBlocks:
    """The blocks of a large weight, outputs by inputs. They are read when sums over them are asked for; those of the
    weight as it is are kept by the weight."""

    value: ir.Value
    out: int
    into: int

    @property
    def shape(self) -> tuple[int, int]:
        array = self._array
        return array.shape[self.out], array.shape[self.into]

    def rows(self, power: Floats, unlike: Bools | None = None) -> Lines:
        """Of each row, its column j times 2^power[j]; with `unlike`, of the blocks that it holds alone."""
        if unlike is None and (power == power[0]).all():
            return _times(self._plain.rows, power[0])
        return self._walked(None, power, unlike).rows

    def columns(self, power: Floats, unlike: Bools | None = None) -> Lines:
        """Of each column, its row i times 2^power[i]."""
        if unlike is None and (power == power[0]).all():
            return _times(self._plain.columns, power[0])
        return self._walked(power, None, unlike).columns

    def heard(self, cap: Floats) -> Lines:
        """As of held ones."""
        with np.errstate(divide="ignore"):
            return self.rows(np.log2(cap))

    @property
    def _array(self) -> Array:
        array = stored(self.value)
        assert array is not None
        return array

    @property
    def _plain(self) -> _Sides:
        assert self.value.const_value is not None
        known = _SEEN.setdefault(stored_tensor(self.value.const_value), {})
        key = (-1, self.out, self.into)
        if key not in known:
            known[key] = self._kept()
        found: _Sides = known[key]
        return found

    def _kept(self) -> _Sides:
        """Of the weight as it is; the numbers are told by their bytes."""
        assert self.value.const_value is not None

        def told() -> list[list[str]]:
            return [[b64encode(each.tobytes()).decode() for each in side] for side in self._walked(None, None, None)]

        tensor, question = stored_tensor(self.value.const_value), f"rows {self.out} by columns {self.into}"
        sides = fact_of_weight(tensor, question, told)
        return _Sides(*(Lines(*(np.frombuffer(b64decode(each)) for each in side)) for side in sides))

    def _walked(self, row: Floats | None, column: Floats | None, unlike: Bools | None) -> _Sides:
        """One pass over the elements, in parts along the first axis."""
        array = self._array
        across = self.out == 0
        first, second = (row, column) if across else (column, row)
        alike = None if unlike is None else (unlike if across else unlike.T)
        place = self.into if across else self.out
        width = array.shape[place]

        def part(start: int, stop: int) -> tuple[Lines, Lines]:
            mine, other = _nothing(stop - start), _nothing(width)
            step = max(1, _CACHED * array.shape[0] // array.size)
            room = np.empty((step, width, array.size // (array.shape[0] * width)))
            for at in range(start, stop, step):
                end = min(at + step, stop)
                sizes = room[: end - at]
                np.copyto(sizes, np.moveaxis(array[at:end], place, 1).reshape(sizes.shape), casting="unsafe")
                np.abs(sizes, out=sizes)
                if first is not None:
                    sizes *= np.exp2(first[at:end])[:, None, None]
                if second is not None:
                    sizes *= np.exp2(second)[:, None]
                if alike is not None:
                    sizes *= alike[at:end, :, None]
                _add(mine, other, slice(at - start, end - start), sizes)
            return mine, other

        size = max(1, _BLOCK * array.shape[0] // array.size)
        parts = in_blocks(part, array.shape[0], size)
        mine = Lines(*(np.concatenate([each[0][i] for each in parts]) for i in range(3)))
        others = [each[1] for each in parts]
        square, peak, total = ([each[i] for each in others] for i in range(3))
        other = Lines(np.sum(square, axis=0), np.max(peak, axis=0), np.sum(total, axis=0))
        return _Sides(mine, other) if across else _Sides(other, mine)


def _add(mine: Lines, other: Lines, at: slice, sizes: Floats) -> None:
    """A few rows of the file's order, reduced along both axes. They are worked on where they lie: memory that is asked
    for anew each time takes longer than the sums. A product with ones is the fastest sum."""
    count = sizes.shape[2]
    rows, columns = np.ones(sizes.shape[0]), np.ones(sizes.shape[1])
    peak = sizes[:, :, 0] if count == 1 else sizes.max(axis=2)
    total = sizes[:, :, 0] if count == 1 else sizes.sum(axis=2)
    for axis, into, place in ((1, mine, at), (0, other, slice(None))):
        into.peak[place] = np.maximum(into.peak[place], peak.max(axis=axis))
        into.total[place] += total @ columns if axis else rows @ total
    np.square(sizes, out=sizes)
    square = sizes[:, :, 0] if count == 1 else sizes.mean(axis=2)
    for axis, into, place in ((1, mine, at), (0, other, slice(None))):
        into.square[place] += square @ columns if axis else rows @ square


def _nothing(count: int) -> Lines:
    return Lines(np.zeros(count), np.zeros(count), np.zeros(count))


def _times(lines: Lines, power: float) -> Lines:
    return lines if power == 0 else Lines(lines.square * 4.0**power, lines.peak * 2.0**power, lines.total * 2.0**power)
