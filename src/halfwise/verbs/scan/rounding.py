"""What rounding to FP16 does to a weight, channel by channel, in one pass over windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.counting import BLOCK, Counts
from halfwise.core.formats import Format, round_to
from halfwise.model.elements import WINDOW, Elements
from halfwise.verbs.scan.document import RoundingRecord

__all__ = ["Rounding", "may_be_quiet", "rounding", "too_quiet"]

_DOUBLE = NDArray[np.float64]
_HALF = Format.FP16
# Below this root mean square a channel can lose more than 1% by rounding to multiples of 2^-24.
_QUIET = 2.0**-18
_WIDEST = Format.FP32.max
_FIRST = 1 << 14  # elements that tell of most weights that they are not too quiet


@dataclass(frozen=True, eq=False)
class Rounding:
    """Sums of squares per channel: of the values, of those that FP16 holds badly, and of the changes.

    `change` is that of a typed ONNX model (to nearest, clamped to 65504); `weak` that of TensorRT's weak typing, which
    raises what is below the smallest subnormal to it. The largest changes are those of single values, typed.
    """

    energy: _DOUBLE
    affected: _DOUBLE
    change: _DOUBLE
    weak: _DOUBLE
    largest: float = 0.0
    largest_relative: float = 0.0

    @classmethod
    def together(cls, parts: Sequence[Rounding]) -> Rounding:
        """Several weights as one without channels."""
        rows = ([getattr(part, name).sum() for part in parts] for name in ("energy", "affected", "change", "weak"))
        energy, affected, change, weak = (np.array([sum(row)], dtype=np.float64) for row in rows)
        largest = max((part.largest for part in parts), default=0.0)
        return cls(energy, affected, change, weak, largest, max((part.largest_relative for part in parts), default=0.0))

    @property
    def relative(self) -> float:
        return _ratio(self.change.sum(), self.energy.sum())

    @property
    def relative_weak(self) -> float:
        return _ratio(self.weak.sum(), self.energy.sum())

    @property
    def affected_share(self) -> float:
        total = float(self.energy.sum())
        return float(self.affected.sum()) / total if total > 0 else 0.0

    @property
    def relative_by_channel(self) -> _DOUBLE:
        """0 for channels that are all zero."""
        return np.sqrt(np.divide(self.change, self.energy, out=np.zeros_like(self.change), where=self.energy > 0))

    def document(self) -> RoundingRecord:
        return RoundingRecord(
            max_abs_change=self.largest,
            max_rel_change=self.largest_relative,
            rel_l2_change=self.relative,
            rel_l2_change_weak=self.relative_weak,
            share_of_energy=self.affected_share,
        )


def may_be_quiet(counts: Counts, channels: int) -> bool:
    """Whether one of so many channels, each of them a stretch without gaps, can be as quiet as `too_quiet` asks.

    Of such a channel 255 of 256 values are below 2^-14, and at least a third of it lies within one counted block.
    """
    return counts.densest >= 0.3 * min(counts.count / max(channels, 1), BLOCK)


def too_quiet(elements: Elements, shape: tuple[int, ...], axis: int | None) -> bool:
    """Whether the weight, or any of its channels, is small enough throughout to lose 1% or more."""
    energy = np.zeros(1 if axis is None else shape[axis])
    limit = _QUIET**2 * elements.size / energy.size
    for block, channels in _blocks(elements, shape, axis, _FIRST):
        with np.errstate(all="ignore"):
            energy[channels] += np.einsum("oci,oci->c", block, block)
        if not (energy < limit).any():  # it only grows: usually a few rows tell
            return False
    return bool(((energy > 0) & (energy < limit)).any()) or bool(energy.sum() < _QUIET**2 * elements.size)


def rounding(
    elements: Elements, shape: tuple[int, ...], axis: int | None, done: Callable[[int], None] = lambda values: None
) -> Rounding:
    """Round the finite values of a weight, and add up what that does; `done` gets how many more values are."""
    sums = np.zeros((4, 1 if axis is None else shape[axis]))
    largest = largest_relative = 0.0
    for block, channels in _blocks(elements, shape, axis):
        values = block.astype(np.float64)
        values[~np.isfinite(values)] = 0.0
        np.clip(values, -_WIDEST, _WIDEST, out=values)  # so that squares of doubles stay finite
        size = np.abs(values)
        squares = values * values
        typed = np.clip(round_to(values, _HALF), -_HALF.max, _HALF.max)
        change = np.abs(typed - values)
        weak = np.where(
            (size > 0) & (size < _HALF.smallest_subnormal), np.copysign(_HALF.smallest_subnormal, values), typed
        )
        badly = (size > 0) & ((size < _HALF.smallest_normal) | (size > _HALF.max))
        for row, part in enumerate((squares, squares * badly, change * change, (weak - values) ** 2)):
            sums[row, channels] += part.sum(axis=(0, 2))
        largest = max(largest, float(change.max(initial=0.0)))
        np.divide(change, size, out=change, where=size > 0)
        largest_relative = max(largest_relative, float(change.max(initial=0.0)))
        done(block.size)
    energy, affected, typed_change, weak_change = sums
    return Rounding(energy, affected, typed_change, weak_change, largest, largest_relative)


def _blocks(
    elements: Elements, shape: tuple[int, ...], axis: int | None, begin: int = 0
) -> Iterator[tuple[NDArray[Any], slice]]:
    """Windows of shape (outer, channels, inner), and which channels they are. Where each has all channels, one of
    `begin` elements is followed by larger ones."""
    channels = 1 if axis is None else shape[axis]
    outer = 1 if axis is None else math.prod(shape[:axis])
    inner = elements.size if axis is None else math.prod(shape[axis + 1 :])
    if axis is None:
        for window in elements.windows():
            yield window.reshape(1, 1, -1), slice(0, 1)
    elif outer == 1:
        step = max(1, WINDOW // max(1, inner))
        for first in range(0, channels, step):
            last = min(first + step, channels)
            yield elements.read(first * inner, last * inner).reshape(1, last - first, inner), slice(first, last)
    else:
        first, some = 0, min(begin or WINDOW, WINDOW)
        while first < outer:
            last = min(first + max(1, some // max(1, channels * inner)), outer)
            block = elements.read(first * channels * inner, last * channels * inner)
            yield block.reshape(last - first, channels, inner), slice(0, channels)
            first, some = last, min(4 * some, WINDOW)


def _ratio(part: float, whole: float) -> float:
    return float(np.sqrt(part / whole)) if whole > 0 else 0.0
