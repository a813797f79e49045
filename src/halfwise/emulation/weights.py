"""Weights rounded to a format and held in FP32, made in blocks on all cores; those of a small model are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import in_blocks
from halfwise.core.fast_casts import cast_fast, round_fast
from halfwise.core.formats import Format, format_of_dtype, round_to
from halfwise.core.freed_memory import give_back_memory
from halfwise.core.set_aside import written_aside
from halfwise.model.magnitudes import magnitudes
from halfwise.model.weights import DerivedTensor, Making, Part, rows_of, stored_tensor
from halfwise.precision.rewrite import Weight

__all__ = ["Room", "RoundedWeights", "held_in_fp32"]

Array = NDArray[Any]
_Key = tuple[ir.TensorProtocol, Format | None, tuple[int, ...]]  # a tensor is known by its identity

_BLOCK = 1 << 19  # elements that one thread takes at a time: of fewer, threads wait for each other
_SOME = 1 << 24  # bytes that are worth giving back
_PART = 1 << 24  # bytes of a table that are made at a time, at least
_LEAST_ROWS = 1 << 9  # or columns, of a part: of fewer, the runtime would sum in another order
_TOGETHER = 16  # columns that a kernel of the runtime takes at once: no part ends within them
_HUGE = 1 << 28  # bytes of a table of which no copy is held in memory
_MOST_ROOM = 1 << 26  # bytes that wait for the next walk
_ROOM = 1 << 27  # bytes of rounded weights that are kept; rounding takes half the time of the product that reads them


class Room:
    """Memory for a few weights, and for the next ones after them: memory is slow when it is first written."""

    def __init__(self) -> None:
        self._whole = np.empty(0, np.float32)
        self._taken = 0

    def clear(self, elements: int) -> None:
        """Whoever was given some has done with it. So many elements at most are asked for next: where they fit, what
        was written is written again."""
        self._taken = 0
        if elements > self._whole.size:
            self._whole = np.empty(0, np.float32)  # before there is another
            self._whole = np.empty(elements, np.float32)

    def empty(self, shape: tuple[int, ...]) -> Array:
        start, size = self._taken, int(np.prod(shape, dtype=np.int64))
        if start + size > self._whole.size:
            self._whole, start = np.empty(0, np.float32), 0  # before there is another
            self._whole = np.empty(size, np.float32)
        self._taken = start + size
        return self._whole[start : start + size].reshape(shape)

    def leave(self) -> None:
        """Nobody takes more for now: what is large goes back to the system."""
        self._taken = 0
        if self._whole.nbytes > _MOST_ROOM:
            self._whole = np.empty(0, np.float32)


class RoundedWeights:
    """What lies in its file in FP32 is mapped, not kept."""

    def __init__(self) -> None:
        self._known: dict[_Key, Array] = {}
        self._lent: WeakValueDictionary[_Key, Array] = WeakValueDictionary()
        self._largest: dict[ir.TensorProtocol, float] = {}
        self._within: set[tuple[ir.TensorProtocol, Format]] = set()  # no value is beyond the format
        self._huge: dict[_Key, Array | None] = {}
        self._left = _ROOM
        self.room = Room()  # of one walk after the other

    def of(self, weight: Weight, *, room: Room | None = None, order: tuple[int, ...] = ()) -> Array:
        """With its axes in that order. Without a `room` of its own it is kept, as long as few are, and a huge one in a
        file; none that somebody holds is made again."""
        key = (*self.key(weight), order)
        known = self._known.get(key, self._lent.get(key))
        if known is None and room is None and not order:
            known = self._in_file(key, weight)
        if known is not None:
            return known
        tensor = stored_tensor(weight.tensor)
        if weight.fmt is not None or isinstance(tensor, DerivedTensor):
            array = self._held(tensor, weight.fmt or Format.FP32, room)
        else:
            array = np.asarray(tensor.numpy())
        if order:
            array = np.ascontiguousarray(array.transpose(order))
        elif isinstance(tensor, ir.ExternalTensor) and array is tensor.numpy():
            return array
        if room is None and array.nbytes <= self._left:
            self._left -= array.nbytes
            self._known[key] = array
        elif room is None:
            self._lent[key] = array
        return array

    def keeps(self, weight: Weight) -> bool:
        """Whether it is kept from now on, in memory or in a file."""
        return 4 * weight.tensor.size <= self._left or 4 * weight.tensor.size > _HUGE

    def has_parts(self, weight: Weight, axis: int = 0) -> bool:
        """Whether it is a large table that is made anew for each product; columns lie apart, and cost more to read."""
        tensor = stored_tensor(weight.tensor)
        in_fp32 = weight.fmt is Format.FP32 and tensor.dtype.numpy() == np.float32
        as_stored = weight.fmt is None or (in_fp32 and not isinstance(tensor, DerivedTensor))
        large = 4 * weight.tensor.size > (_HUGE if axis else _PART)
        return not as_stored and len(weight.tensor.shape) == 2 and large

    def parts(self, weight: Weight, axis: int = 0) -> Iterator[Array]:
        """Its rows or columns, a few at a time; each part is written over where the next is asked for."""
        tensor, fmt = stored_tensor(weight.tensor), weight.fmt
        assert fmt is not None
        looked, source, shape = (tensor, fmt) not in self._within, _source(tensor), tensor.shape.numpy()
        least, lost = max(_PART // (4 * shape[1 - axis]), _LEAST_ROWS), False
        for start, end in pairwise(_even_ends(shape[axis], least)):
            part = (slice(None), slice(start, end)) if axis else (slice(start, end),)
            self.room.clear((end - start) * shape[1 - axis])
            held, clamped = _part_held(tensor, source, part, fmt, self.room, looked=looked)
            lost = lost or clamped
            yield held
        if not lost:
            self._within.add((tensor, fmt))

    def _in_file(self, key: _Key, weight: Weight) -> Array | None:
        """A huge table as long as the run, where a disk has room for it."""
        if key not in self._huge and 4 * weight.tensor.size > _HUGE and self.has_parts(weight):
            self._huge[key] = written_aside(weight.tensor.shape.numpy(), np.dtype(np.float32), self.parts(weight))
        return self._huge.get(key)

    def _held(self, tensor: ir.TensorProtocol, fmt: Format, room: Room | None) -> Array:
        """What is seen once to be within the format is not looked at again."""
        known = (tensor, fmt) in self._within
        held, clamped = _part_held(tensor, _source(tensor), (), fmt, room, looked=not known)
        if not clamped:
            self._within.add((tensor, fmt))
        return held

    def forget(self) -> None:
        """What is kept is made again when it is asked for. A few bytes are no matter."""
        if self._left <= _ROOM - _SOME:
            self._known.clear()
            self._left = _ROOM
        self.room = Room()
        give_back_memory()

    def picked(self, weight: Weight, indices: Array) -> Array:
        """Entries along the first axis: no other is read."""
        found = np.asarray(stored_tensor(weight.tensor).numpy())[indices]
        return found if weight.fmt is None else held_in_fp32(found, weight.fmt)

    @staticmethod
    def key(weight: Weight) -> tuple[ir.TensorProtocol, Format | None]:
        """Which values these are: what is stored in a format is the same in FP32."""
        stored = stored_tensor(weight.tensor)
        exact = weight.fmt is not None and weight.fmt.onnx_type == stored.dtype.value
        return stored, Format.FP32 if exact else weight.fmt

    def largest(self, tensor: ir.TensorProtocol) -> float:
        """The largest magnitude; infinite where anything is not finite."""
        stored = stored_tensor(tensor)
        if stored not in self._largest:
            self._largest[stored] = magnitudes(stored).largest
        return self._largest[stored]


def _even_ends(length: int, least: int) -> list[int]:
    """Where parts of nearly the same length end, none of which is short: the runtime would sum it in another order."""
    count = max(length // least, 1)
    return [*(length * number // count // _TOGETHER * _TOGETHER for number in range(count)), length]


def held_in_fp32(stored: Array, fmt: Format, room: Room | None = None) -> Array:
    """A weight in `fmt`, finite values beyond its range clamped to the largest; the array itself where that is FP32."""
    return _held(stored, fmt, room, looked=True)[0]


def _source(tensor: ir.TensorProtocol) -> Array | Making:
    return tensor.begin() if isinstance(tensor, DerivedTensor) else np.asarray(tensor.numpy())


def _part_held(
    tensor: ir.TensorProtocol, source: Array | Making, part: Part, fmt: Format, room: Room | None, *, looked: bool
) -> tuple[Array, bool]:
    """A weight or a part of it, and whether any value was clamped. What is made of another weight is made and rounded
    in one place."""
    if isinstance(source, np.ndarray):
        return _held(source[part] if part else source, fmt, room, looked=looked)
    whole = tensor.shape.numpy()
    rows, *others = (*part, *(slice(None) for _ in whole[len(part) :]))
    first, last, _ = rows.indices(whole[0])
    shape = (last - first, *(len(range(*each.indices(size))) for each, size in zip(others, whole[1:], strict=True)))
    held = np.empty(shape, np.float32) if room is None else room.empty(shape)

    def make(start: int, stop: int) -> bool:
        kept = held[start:stop]
        source((slice(first + start, first + stop), *others), kept)
        return fmt is not Format.FP32 and _rounded_there(kept, fmt, looked=looked)

    return held, any(in_blocks(make, shape[0], rows_of(tensor)))


def _rounded_there(kept: Array, fmt: Format, *, looked: bool) -> bool:
    """Whether any value was beyond the format; it is the largest one now."""
    beyond = looked and not (float(kept.max(initial=0.0)) <= fmt.max and float(kept.min(initial=0.0)) >= -fmt.max)
    wide = kept.copy() if beyond else kept
    if fmt is not Format.FP16 or not round_fast(kept, kept):
        kept[...] = round_to(kept, fmt)
    return beyond and _clamped(wide, fmt, kept)


def _held(stored: Array, fmt: Format, room: Room | None, *, looked: bool) -> tuple[Array, bool]:
    """The same, and whether any value was clamped: whoever knows that none is does not have it `looked` for."""
    if stored.dtype == np.float32 and fmt is Format.FP32:
        return stored, False
    held = np.empty(stored.shape, np.float32) if room is None else room.empty(stored.shape)
    source, target = np.ascontiguousarray(stored).reshape(-1), held.reshape(-1)
    own = format_of_dtype(stored.dtype)

    def make(start: int, stop: int) -> bool:
        piece, kept = source[start:stop], target[start:stop]
        if own is fmt or fmt is Format.FP32:
            if not cast_fast(piece, kept):
                kept[:] = _widened(piece)
            return False
        wide = _widened(piece)
        if fmt is not Format.FP16 or not round_fast(wide, kept):
            kept[:] = round_to(wide, fmt)
        return looked and _clamped(wide, fmt, kept)

    return held, any(in_blocks(make, source.size, _BLOCK))


def _widened(piece: Array) -> Array:
    with np.errstate(over="ignore"):  # of double precision
        return piece.astype(np.float32, copy=False)


def _clamped(wide: Array, fmt: Format, kept: Array) -> bool:
    """Whether any value was beyond the format; it is the largest one now."""
    if float(np.max(kept, initial=0.0)) <= fmt.max and float(np.min(kept, initial=0.0)) >= -fmt.max:
        return False
    lost = np.isinf(kept) & np.isfinite(wide)
    kept[lost] = np.copysign(np.float32(fmt.max), wide[lost])
    return True
