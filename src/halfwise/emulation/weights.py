"""Weights rounded to a format and held in FP32, made in blocks on all cores, and kept as far as there is room."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import Format, format_of_dtype, round_to
from halfwise.model.weights import WidenedTensor
from halfwise.precision.rewrite import Weight

__all__ = ["RoundedWeights", "held_in_fp32"]

Array = NDArray[Any]

_BLOCK = 1 << 20  # elements that one thread takes at a time
_MOST_THREADS = 8
_ROOM = 3 << 29  # bytes of rounded weights that are kept


class RoundedWeights:
    """What lies in its file in FP32 is mapped, not kept."""

    def __init__(self) -> None:
        self._known: dict[tuple[ir.TensorProtocol, Format | None], Array] = {}  # a tensor is known by its identity
        self._largest: dict[ir.TensorProtocol, float] = {}
        self._last: tuple[object, Array] = None, np.empty(0)  # where there is no room, the last one is kept
        self._room = _ROOM

    def of(self, weight: Weight) -> Array:
        key = _values_of(weight)
        if key in self._known:
            return self._known[key]
        if key == self._last[0]:
            return self._last[1]
        tensor = _stored(weight.tensor)
        stored = np.asarray(tensor.numpy())
        array = stored if weight.fmt is None else held_in_fp32(stored, weight.fmt)
        if isinstance(tensor, ir.ExternalTensor) and array is stored:
            return array
        if array.nbytes <= self._room:
            self._room -= array.nbytes
            self._known[key] = array
        else:
            self._last = key, array
        return array

    def largest(self, tensor: ir.TensorProtocol) -> float:
        """The largest magnitude; infinite where anything is not finite."""
        stored = _stored(tensor)
        if stored not in self._largest:
            array = np.asarray(stored.numpy())
            found = [0.0]

            def see(start: int) -> None:
                piece = _widened(array.reshape(-1)[start : start + _BLOCK])
                least, most = float(piece.min()), float(piece.max())
                found.append(max(-least, most) if np.isfinite(least) and np.isfinite(most) else np.inf)

            _on_all_cores(see, array.size)
            self._largest[stored] = max(found)
        return self._largest[stored]


def _on_all_cores(work: Callable[[int], None], size: int) -> None:
    """Do it for the start of every block."""
    starts = range(0, size, _BLOCK)
    threads = min(_cores(), len(starts))
    if threads <= 1:
        for start in starts:
            work(start)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, starts):
            pass


def held_in_fp32(stored: Array, fmt: Format) -> Array:
    """A weight in `fmt`, finite values beyond its range clamped to the largest; the array itself where that is FP32."""
    if stored.dtype == np.float32 and fmt is Format.FP32:
        return stored
    held = np.empty(stored.shape, np.float32)
    source, target = np.ascontiguousarray(stored).reshape(-1), held.reshape(-1)
    own = format_of_dtype(stored.dtype)

    def make(start: int) -> None:
        piece = source[start : start + _BLOCK]
        wide = _widened(piece)
        if own is not fmt:
            wide = _rounded(wide, fmt)
        target[start : start + _BLOCK] = wide

    _on_all_cores(make, source.size)
    return held


def _widened(piece: Array) -> Array:
    with np.errstate(over="ignore"):  # of double precision
        return piece.astype(np.float32, copy=False)


def _rounded(wide: Array, fmt: Format) -> Array:
    narrow = round_to(wide, fmt)
    if fmt.narrow and max(float(np.max(narrow, initial=0.0)), -float(np.min(narrow, initial=0.0))) > fmt.max:
        lost = np.isinf(narrow) & np.isfinite(wide)
        narrow[lost] = np.copysign(np.float32(fmt.max), wide[lost])
    return narrow


def _stored(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return tensor.stored if isinstance(tensor, WidenedTensor) else tensor


def _values_of(weight: Weight) -> tuple[ir.TensorProtocol, Format | None]:
    """Which values these are: what is stored in a format is the same in FP32."""
    stored = _stored(weight.tensor)
    exact = weight.fmt is not None and weight.fmt.onnx_type == stored.dtype.value
    return stored, Format.FP32 if exact else weight.fmt


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(len(affinity(0)) if affinity is not None else os.cpu_count() or 1, _MOST_THREADS)
