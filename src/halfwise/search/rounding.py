"""The rounding error of one tensor, and what a gradient makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.fast_casts import rounded
from halfwise.core.formats import Format

__all__ = ["Rounding", "energy", "finite"]

Array = NDArray[Any]

_BLOCK = 1 << 13  # elements at a time: in the processor's cache, and too few for BLAS to start threads
_SAMPLE = 1024  # elements looked at for repetitions
_REPEATED = 0.98  # of distinct values among them below which the tensor is taken to repeat values
_GROUP_BITS = 12
_GROUP_BLOCK = 1 << 15  # elements that are summed by group at a time, in the processor's cache
_DROPPED_BITS = 6  # of FP32's 23: values that agree in the other 17 round alike


@dataclass(frozen=True)
class Rounding:
    """Errors of different values are independent; equal values (padding, repeated rows) have the same one.

    `groups` numbers the values where many are equal, by a hash: a collision mixes two independent errors, which on
    average changes nothing.
    """

    error: Array
    groups: NDArray[np.uint16] | None

    @classmethod
    def of(cls, array: Array, narrow: Array, clamp: float = np.inf) -> Rounding | None:
        """None where nothing changes. Where the result is not finite, or was clamped, there is no small error.

        `narrow` is written over.
        """
        with np.errstate(invalid="ignore"):
            error = np.subtract(narrow, array, out=narrow)
        if np.isfinite(clamp) and (lost := (array > clamp) | (array < -clamp)).any():
            error[lost] = 0
        return cls._of(array, finite(error))

    @classmethod
    def to(cls, array: Array, fmt: Format) -> Rounding | None:
        error = rounded(array, fmt)
        with np.errstate(invalid="ignore", over="ignore"):
            error -= array
            return cls._of(array, finite(error))

    @classmethod
    def _of(cls, array: Array, error: Array) -> Rounding | None:
        return cls(error, _groups(array, error)) if error.any() else None

    def energy(self, gradient: Array) -> float:
        """The squared error that it leaves at the outputs, on average over the gradient's probes."""
        return energy(gradient, self.error) if self.groups is None else _grouped(self.groups, gradient, self.error)

    def energy_of(self, moved: Array) -> float:
        """The same where each element's part at the outputs is already known, per probe."""
        return energy(moved) if self.groups is None else _grouped(self.groups, moved)


def _groups(array: Array, error: Array) -> NDArray[np.uint16] | None:
    flat = np.ascontiguousarray(array, dtype=np.float32).reshape(-1).view(np.uint32)
    if flat.size < 2:
        return None
    step = -(-flat.size // _SAMPLE)
    sample = np.sort(flat[::step][error.reshape(-1)[::step] != 0] >> np.uint32(_DROPPED_BITS))
    if 1 + np.count_nonzero(np.diff(sample)) >= _REPEATED * sample.size:
        return None
    groups = np.empty(flat.size, np.uint16)
    for start in range(0, flat.size, _GROUP_BLOCK):
        coarse = flat[start : start + _GROUP_BLOCK] >> np.uint32(_DROPPED_BITS)
        coarse *= np.uint32(2654435769)
        groups[start : start + _GROUP_BLOCK] = coarse >> np.uint32(32 - _GROUP_BITS)
    return groups


def _grouped(groups: NDArray[np.uint16], gradient: Array, error: Array | None = None) -> float:
    """The squared error of what moves together in each group, on average over the probes."""
    flat = None if error is None else error.reshape(-1)
    total = 0.0
    for probe in np.ascontiguousarray(gradient).reshape(len(gradient), -1):
        sums = np.zeros(1 << _GROUP_BITS)
        for start in range(0, probe.size, _GROUP_BLOCK):
            part = probe[start : start + _GROUP_BLOCK]
            moved = part if flat is None else part * flat[start : start + _GROUP_BLOCK]
            sums += np.bincount(groups[start : start + _GROUP_BLOCK], weights=moved, minlength=sums.size)
        total += float(sums @ sums)
    return total / len(gradient)


def energy(gradient: Array, error: Array | None = None) -> float:
    """The squared error at the outputs, on average over the probes, of independent errors in a tensor's elements."""
    flat = None if error is None else error.reshape(-1)
    total = 0.0
    for probe in np.ascontiguousarray(gradient).reshape(len(gradient), -1):
        for start in range(0, probe.size, _BLOCK):
            part = probe[start : start + _BLOCK]
            moved = part if flat is None else part * flat[start : start + _BLOCK]
            found = float(moved @ moved)
            if not 1e-30 < found < np.inf:  # beyond what FP32 can sum
                wide = moved.astype(np.float64)
                found = float(wide @ wide)
            total += found
    return total / len(gradient)


def finite(array: Array) -> Array:
    return array if np.isfinite(array.sum()) else np.where(np.isfinite(array), array, np.float32(0))
