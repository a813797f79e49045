"""How many choices between near equals a decision's noise is to change: class ids and masks, place by place.

A few inputs may show no difference where the next one does. What they show well is how far each choice is from
another, and how far the tensors behind it are off; with normal noise that tells how many places change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.float_sum import float_sum
from halfwise.core.formats import Format, round_to
from halfwise.core.output_kinds import NO_AXIS, OutputKind, Reading

__all__ = ["Changes", "changes_expected", "clearly_chosen"]

Array = NDArray[Any]
Outputs = Mapping[str, Array]

MISSES = 0.05  # share of inputs that may have more changes than are allowed


@dataclass(frozen=True)
class Changes:
    """The differences to expect among so many choices."""

    expected: float
    places: int

    def bearable(self, exact: float) -> float:
        """The expected number with which a twentieth of such inputs has more differences than `exact` allows."""
        allowed = math.floor((1.0 - exact) * self.places + 1e-9)
        if not allowed:
            return -math.log1p(-MISSES)
        low, high = 0.0, float(allowed + 1)
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if _more_than(allowed, middle) < MISSES else (low, middle)
        return high


def _more_than(allowed: int, expected: float) -> float:
    """How often more happens than `allowed`, of what happens so often on average: Poisson's tail."""
    if allowed > 1000:  # nearly normal
        return 0.5 * math.erfc((allowed + 0.5 - expected) / math.sqrt(2.0 * max(expected, 1e-9)))
    term = total = math.exp(-expected)
    for count in range(1, allowed + 1):
        term *= expected / count
        total += term
    return 1.0 - total


def changes_expected(
    kinds: Sequence[OutputKind], reference: Outputs, other: Outputs, read_in: Mapping[str, Format]
) -> dict[str, Changes]:
    """Of the outputs that choose, where the tensors behind them are known on both sides. `read_in`: how a choice reads
    a tensor, where that is narrower than what holds it."""
    found = {}
    for kind in kinds:
        if kind.reading in (Reading.CHOICES, Reading.COUNTED):
            read = {
                n: round_to(other[n], read_in[n]) if n in read_in else other[n] for n in kind.decided_by if n in other
            }
            wanted, got = _margins(kind, reference), _margins(kind, read, like=reference)
            if wanted is not None and got is not None and wanted.shape == got.shape:
                found[kind.output] = _expected(kind, wanted, got, _size(kind, reference))
    return found


def clearly_chosen(kind: OutputKind, reference: Outputs) -> Array | None:
    """Where FP32's own choice is not a matter of its rounding; None where the tensors behind it are not known."""
    margin = _margins(kind, reference)
    return None if margin is None else np.asarray(~(margin <= kind.noise * _size(kind, reference)))


def _expected(kind: OutputKind, wanted: Array, got: Array, size: float) -> Changes:
    clear = wanted > (kind.noise * size if kind.reading is Reading.CHOICES else 0.0)
    off = got - wanted
    off = off[np.isfinite(off)]
    noise = math.sqrt(float(np.mean(np.square(off)))) if off.size else 0.0
    if noise == 0.0:
        return Changes(0.0, wanted.size)
    close = wanted[clear & (wanted < 8.0 * noise)] / (noise * math.sqrt(2.0))
    return Changes(float_sum(0.5 * math.erfc(each) for each in close.tolist()), wanted.size)


def _margins(kind: OutputKind, outputs: Outputs, like: Outputs | None = None) -> Array | None:
    """By how much each choice is made; with `like`, the choice that is made there. None where that is not known."""
    tensors = [outputs[name].astype(np.float64) for name in kind.decided_by if name in outputs]
    if not tensors or len(tensors) < len(kind.decided_by):
        return None
    judge = outputs if like is None else like
    first, chosen = tensors[0], judge[kind.decided_by[0]].astype(np.float64)
    if first.shape != chosen.shape:
        return None
    if kind.axis == NO_AXIS:
        other = tensors[1] if len(tensors) == 2 else kind.threshold
        others = judge[kind.decided_by[1]].astype(np.float64) if len(tensors) == 2 else other
        if not _broadcast(first, other, others):
            return None
        return np.asarray((first - other) * np.sign(chosen - others))
    if not -first.ndim <= kind.axis < first.ndim or first.shape[kind.axis] < 2:
        return None
    best = np.argpartition(chosen, first.shape[kind.axis] - 2, axis=kind.axis)
    pair = np.take_along_axis(first, np.take(best, [-2, -1], axis=kind.axis), axis=kind.axis)
    return np.asarray(np.diff(pair, axis=kind.axis))


def _broadcast(*arrays: Array | float) -> bool:
    """A plan may name tensors that no comparison takes together."""
    try:
        np.broadcast_shapes(*map(np.shape, arrays))
    except ValueError:
        return False
    return True


def _size(kind: OutputKind, reference: Outputs) -> float:
    first = reference[kind.decided_by[0]].astype(np.float64)
    known = first[np.isfinite(first)]
    return float(np.sqrt(np.mean(np.square(known)))) if known.size else 0.0
