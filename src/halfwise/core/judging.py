"""The error of one sample, output by output, each read as its kind says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from halfwise.core.choosing import clearly_chosen
from halfwise.core.matched_rows import as_rows, found_share, match_rows
from halfwise.core.metrics import Metrics, compare
from halfwise.core.output_kinds import OutputKind, Reading

__all__ = ["judged"]

Array = NDArray[Any]
Outputs = Mapping[str, Array]


def judged(kinds: Sequence[OutputKind], reference: Outputs, other: Outputs) -> dict[str, Metrics]:
    """The outputs that have a kind; a tensor inside the model only where both know it."""
    found: dict[str, Metrics] = {}
    for kind in kinds:
        if kind.reading is Reading.ROWS:
            if kind.together[0] == kind.output:
                rows = {each.output: each for each in kinds if each.output in kind.together}
                found.update(_rows(rows, reference, other))
        elif kind.output in reference and kind.output in other:
            found[kind.output] = _one(kind, reference, other)
    return found


def _one(kind: OutputKind, reference: Outputs, other: Outputs) -> Metrics:
    wanted, got = np.asarray(reference[kind.output]), np.asarray(other[kind.output])
    if wanted.shape != got.shape:
        return compare(wanted, got)
    if kind.reading is Reading.CHOICES:
        clear = clearly_chosen(kind, reference)
        metrics = compare(wanted, got)
        if clear is None or clear.size != wanted.size:
            return metrics
        wrong = np.count_nonzero((wanted != got) & clear.reshape(wanted.shape))
        return replace(metrics, exact=1.0 - wrong / max(wanted.size, 1))
    if (filled := kind.filled(wanted)) is not None:
        return _beside_filler(kind, wanted, got, filled)
    if kind.reading is not Reading.PARTS or wanted.ndim <= kind.axis or wanted.shape[kind.axis] != kind.parts[-1].stop:
        return compare(wanted, got, kind.floor.of(wanted.size))
    return replace(compare(wanted, got), **_worst_part(kind, wanted, got))


def _beside_filler(kind: OutputKind, wanted: Array, got: Array, filled: Array) -> Metrics:
    """What is masked is large and tells nothing: it has to stay as it is, and makes no other error small."""
    answer, answered = wanted[~filled], got[~filled]
    rest = compare(answer, answered, kind.floor.of(answer.size))
    masked = compare(wanted[filled], got[filled])
    return replace(compare(wanted, got), rel_l2=max(rest.rel_l2, masked.rel_l2), unfloored=rest.unfloored)


def _worst_part(kind: OutputKind, wanted: Array, got: Array) -> dict[str, Any]:
    pairs = zip(kind.slices(wanted), kind.slices(got), strict=True)
    measured = [(name, compare(a, b, floor.of(a.size))) for (name, a, floor), (_, b, _) in pairs]
    name, worst = max(measured, key=lambda each: each[1].rel_l2)
    return {"rel_l2": worst.rel_l2, "unfloored": max(each.unfloored for _, each in measured), "part": name}


END = 0.01  # of the largest score: rows this near to the last score may change places with those not selected


def _at_the_end(scores: Array | None, batch: int, rows: int) -> Array:
    """The rows whose score is about that of the last one, each input of a batch by itself."""
    if scores is None or scores.size != rows or not rows:
        return np.zeros(rows, dtype=bool)
    each = np.asarray(scores, dtype=np.float64).reshape(max(batch, 1), -1)
    return np.asarray(np.abs(each - each[:, -1:]) <= END * np.abs(each).max(axis=1, keepdims=True)).reshape(-1)


def _rows(kinds: Mapping[str, OutputKind], reference: Outputs, other: Outputs) -> Iterator[tuple[str, Metrics]]:
    """The rows of outputs that are selected together, compared pair by pair."""
    names = [name for name in kinds if name in reference and name in other]
    wanted = [as_rows(np.asarray(reference[name]), kinds[name].axis) for name in names]
    got = [as_rows(np.asarray(other[name]), kinds[name].axis) for name in names]
    if (
        not names
        or any(len({len(rows) for rows in side}) > 1 for side in (wanted, got))
        or any(a.shape[1] != b.shape[1] for a, b in zip(wanted, got, strict=True) if len(a) and len(b))
    ):
        yield from ((name, compare(reference[name], other[name])) for name in names)
        return
    batch = min(int(np.prod(np.shape(reference[name])[: kinds[name].axis])) for name in names)
    lengths = len(wanted[0]), len(got[0])
    if min(lengths):
        at, partner = match_rows(wanted, got, batch)
    else:
        at = partner = np.zeros(0, dtype=np.intp)
    lost = np.ones(lengths[0], dtype=bool)
    lost[at] = False
    scores = next((reference[kind.scored] for kind in kinds.values() if kind.scored in reference), None)
    excused = int(np.sum(lost & _at_the_end(scores, batch, lost.size))) if lengths[0] == lengths[1] else 0
    excused = min(excused, len(at))  # where all scores are about the same, all rows are at the end: none was compared
    found = found_share(*lengths, len(at) + excused)
    for name, a, b in zip(names, wanted, got, strict=True):
        metrics = compare(a[at], b[partner], kinds[name].floor.of(a[at].size))
        yield name, replace(metrics, found=found)
