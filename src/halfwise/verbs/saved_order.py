"""Whether saved outputs are those of the samples in another order, such as that of file names as text: 0, 1, 10, 2."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import tensors_in
from halfwise.core.notes import Note, NoteKind

__all__ = ["mark_of", "order_note"]

_MOST = 256  # samples: each answer is held beside each
_VALUES = 512  # of each output that tell one answer from another
_NEAR = 0.1  # how much nearer an answer is to the sample that it is of than to the one that it was compared with

Mark = tuple[tuple[tuple[int, ...], ...], NDArray[np.float64]]


def mark_of(answer: Mapping[str, Any], names: Iterable[str]) -> Mark:
    """A few values of each output, and the shapes."""
    arrays = [array for array in tensors_in(answer[name] for name in names) if array.dtype.kind in "fiub"]
    few = [array.reshape(-1)[:: max(1, array.size // _VALUES)].astype(np.float64) for array in arrays]
    return tuple(array.shape for array in arrays), np.concatenate([*few, np.zeros(0)])


def order_note(marks: Sequence[tuple[Mark, Mark]]) -> Note | None:
    """A note where every saved output is near the answer to one sample, each to one of its own, and some to another
    than it was compared with."""
    if len(marks) > _MOST:
        return None
    nearest = [_nearest([wanted for wanted, _ in marks], got) for _, got in marks]
    moved = [at for at, sample in enumerate(nearest) if sample != at]
    if not moved or len(set(nearest)) < len(nearest):
        return None
    for at in moved:
        least, most = _distance(marks[nearest[at]][0], marks[at][1]), _distance(*marks[at])
        if not (math.isfinite(least) and least <= _NEAR * most):
            return None
    return Note.of(NoteKind.SAVED_IN_OTHER_ORDER, output=moved[0] + 1, sample=nearest[moved[0]] + 1)


def _nearest(wanted: Sequence[Mark], got: Mark) -> int:
    return min(range(len(wanted)), key=lambda at: _distance(wanted[at], got))


def _distance(wanted: Mark, got: Mark) -> float:
    """Relative; infinite between answers of different shapes, or where one is not finite."""
    if wanted[0] != got[0] or not (np.isfinite(wanted[1]).all() and np.isfinite(got[1]).all()):
        return float("inf")
    return float(np.linalg.norm(wanted[1] - got[1]) / max(float(np.linalg.norm(wanted[1])), 1e-30))
