"""Matches selected rows: each row of the reference with the row of the other that says the same, wherever it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST_ROWS", "as_rows", "found_share", "match_rows"]

Array = NDArray[Any]
Places = NDArray[np.intp]

NEAR = 0.02  # of the usual size: rows at the same place that differ by no more are the same
SAME = 0.1  # of the usual size: rows further apart are different ones
_BLOCK = 512  # rows compared with all others at once
CANDIDATES = 8  # nearest rows looked at for each row
LEAST_ROWS = 20  # a list counts as this long at least, so that one row may change where few are selected


def as_rows(array: Array, axis: int) -> Array:
    """The rows along `axis`, each flat; of a batch, the rows of one input behind those of the other."""
    axis %= array.ndim
    batch = int(np.prod(array.shape[:axis]))
    return array.reshape(batch * array.shape[axis], -1) if array.size else array.reshape(batch * array.shape[axis], 0)


def found_share(reference: int, other: int, matched: int) -> float:
    """The share of the longer list that has a partner in the other one."""
    longer = max(reference, other)
    return 1.0 - (longer - matched) / max(longer, LEAST_ROWS)


def match_rows(reference: Sequence[Array], other: Sequence[Array], batch: int = 1) -> tuple[Places, Places]:
    """Pairs of rows; each of the arrays holds some columns of all rows.

    Whole numbers and text must be equal, and so must the input of the batch. Floats may differ by a tenth of their
    usual size. A row that kept its place is taken first, then the nearest ones.
    """
    n, m = len(reference[0]), len(other[0])
    keys_a, keys_b = _keys(reference, other, batch)
    a, b = _features(reference, other)
    left_a, left_b = np.ones(n, bool), np.ones(m, bool)
    both = min(n, m)
    kept = np.flatnonzero((_distance(a[:both], b[:both]) <= NEAR) & (keys_a[:both] == keys_b[:both]))
    left_a[kept] = left_b[kept] = False
    pairs = [(int(i), int(i)) for i in kept]
    groups_a, groups_b = _groups(keys_a, left_a), _groups(keys_b, left_b)
    shared = [(groups_a[key], groups_b[key]) for key in groups_a if key in groups_b]
    single = [each for each in shared if len(each[0]) == len(each[1]) == 1]  # of lists of places, nearly all
    rows, columns = (np.array([each[side][0] for each in single], np.intp) for side in (0, 1))
    same = _distance(a[rows], b[columns]) <= SAME
    pairs += zip(rows[same].tolist(), columns[same].tolist(), strict=True)
    for rows, columns in shared:
        if len(rows) > 1 or len(columns) > 1:
            pairs += _nearest(a[rows], b[columns], rows, columns)
    pairs.sort()
    places = np.asarray(pairs, dtype=np.intp).reshape(-1, 2)
    return places[:, 0], places[:, 1]


def _groups(keys: Places, left: NDArray[np.bool_]) -> dict[int, Places]:
    """The rows of each key, in their order."""
    rows = np.flatnonzero(left)
    ordered = rows[np.argsort(keys[rows], kind="stable")]
    found, first = np.unique(keys[ordered], return_index=True)
    return dict(zip(found.tolist(), np.split(ordered, first[1:]), strict=True)) if len(rows) else {}


def _nearest(a: Array, b: Array, rows: Places, columns: Places) -> list[tuple[int, int]]:
    """The nearest pairs first, each row once."""
    found = [(np.zeros(0), rows[:0], columns[:0])]
    along = int(np.ptp(a, axis=0).argmax()) if a.shape[1] else None  # what tells most rows apart
    line_a, line_b = (np.zeros(len(each)) if along is None else each[:, along] for each in (a, b))
    in_a, in_b = np.argsort(line_a, kind="stable"), np.argsort(line_b, kind="stable")
    for start in range(0, len(rows), _BLOCK):
        own = in_a[start : start + _BLOCK]
        first = np.searchsorted(line_b[in_b], line_a[own[0]] - SAME)
        theirs = in_b[first : np.searchsorted(line_b[in_b], line_a[own[-1]] + SAME, side="right")]
        kept = min(CANDIDATES, len(theirs))
        if not kept:
            continue
        block, others = a[own], b[theirs]
        squares = np.square(block).sum(1)[:, None] + np.square(others).sum(1) - 2 * block @ others.T
        near = np.argpartition(squares, kept - 1, axis=1)[:, :kept]
        distances = _distance(block[:, None, :], others[near])
        i, k = np.nonzero(distances <= SAME)
        found.append((distances[i, k], rows[own[i]], columns[theirs[near[i, k]]]))
    distance, row, column = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.lexsort((column, row, distance))
    taken_a, taken_b, pairs = set[int](), set[int](), []
    for first, second in zip(row[order].tolist(), column[order].tolist(), strict=True):
        if first not in taken_a and second not in taken_b:
            taken_a.add(first)
            taken_b.add(second)
            pairs.append((first, second))
    return pairs


def _distance(a: Array, b: Array) -> Array:
    return np.asarray(np.sqrt(np.square(a - b).sum(axis=-1)))


def _features(reference: Sequence[Array], other: Sequence[Array]) -> tuple[Array, Array]:
    """The float columns, each array in units of its own usual size in the reference."""
    left, right = [np.zeros((len(reference[0]), 0))], [np.zeros((len(other[0]), 0))]
    for a, b in zip(reference, other, strict=True):
        if a.dtype.kind != "f" or not a.shape[1]:
            continue
        wide_a, wide_b = (np.nan_to_num(array.astype(np.float64), posinf=1e30, neginf=-1e30) for array in (a, b))
        known = np.abs(wide_a) < 1e30
        square = np.mean(np.square(wide_a), where=known) if known.any() else 0.0
        size = (float(np.sqrt(square)) or 1.0) * np.sqrt(a.shape[1])
        left.append(wide_a / size)
        right.append(wide_b / size)
    return np.concatenate(left, axis=1), np.concatenate(right, axis=1)


def _keys(reference: Sequence[Array], other: Sequence[Array], batch: int) -> tuple[Places, Places]:
    """A number for each row that is the same where its input and all that is no float are."""
    n, m = len(reference[0]), len(other[0])
    keys = np.concatenate([np.arange(n) * batch // max(n, 1), np.arange(m) * batch // max(m, 1)])
    for a, b in zip(reference, other, strict=True):
        if a.dtype.kind == "f" or not a.shape[1]:
            continue
        columns = np.concatenate([a, b]).reshape(n + m, -1)
        if columns.dtype.kind == "O":
            columns = columns.astype(str)
        _, codes = np.unique(columns, axis=0, return_inverse=True)
        keys = keys * (int(codes.max()) + 1) + codes.reshape(-1)
    return keys[:n], keys[n:]
