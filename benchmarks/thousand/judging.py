"""How far answers are from FP32's, each output read as `fix` says that it reads it; the arithmetic is written anew."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.strict import StrictSession, check_valid, rel_l2

__all__ = ["Answers", "judged_strictly", "worst_error"]

Array = NDArray[Any]
Answers = Mapping[str, Any]
Kinds = Sequence[Any]  # of halfwise.core.output_kinds

FAR = 0.1  # of the usual size: rows further apart are different ones
CHANGED = 0.05  # share of the rows that may be others
LIST = 20  # rows that a list counts at least
TIED = 0.01  # of the best score: rows this near to the last score are any of those that nearly got in


def judged_strictly(
    fp32: onnx.ModelProto, typed: onnx.ModelProto, feeds: Sequence[Mapping[str, Any]], kinds: Kinds
) -> float:
    """The worst error of a typed model whose every FP16 tensor is really rounded."""
    check_valid(typed)
    wanted, got = StrictSession(fp32), StrictSession(typed)
    pairs = (
        tuple(dict(zip(each.output_names, each.run(_wide(feed)), strict=True)) for each in (wanted, got))
        for feed in feeds
    )
    return max((worst_error(reference, answer, kinds) for reference, answer in pairs), default=0.0)


def _wide(feed: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs typed FP16 by another tool are held in FP32, as every tensor is."""
    return {name: held.astype(np.float32) if _is_half(held) else held for name, held in feed.items()}


def _is_half(held: Any) -> bool:
    return isinstance(held, np.ndarray) and held.dtype == np.float16


def worst_error(reference: Answers, answer: Answers, kinds: Kinds) -> float:
    """Over all float outputs of one input."""
    found = [0.0]
    rows = {kind.output: kind for kind in kinds if kind.reading.value == "rows"}
    known = {kind.output: kind for kind in kinds if kind.reading.value in ("values", "parts")}
    for together in {kind.together for kind in rows.values()}:
        names = [name for name in together if name in reference and name in answer and name in rows]
        if names:
            found.append(_rows(names, rows, reference, answer))
    for name in reference:
        if name not in rows and name in answer:
            found += _values(reference[name], answer[name], known.get(name))
    return max(found)


def _values(wanted: Any, got: Any, kind: Any) -> Iterator[float]:
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(wanted) != len(got):
            yield math.inf
            return
        for one, other in zip(wanted, got, strict=True):
            yield from _values(one, other, None)
        return
    if not isinstance(wanted, np.ndarray) or wanted.dtype.kind != "f":
        return
    if not isinstance(got, np.ndarray) or wanted.shape != got.shape:
        yield math.inf
        return
    for one, other, floor in _pieces(wanted, got, kind):
        yield _error(one.astype(np.float32), other.astype(np.float32), floor)


def _pieces(wanted: Array, got: Array, kind: Any) -> Iterator[tuple[Array, Array, float]]:
    """The output as a whole, or its slices in units of their own; each with the least size that errors relate to."""
    if kind is not None and kind.parts and wanted.ndim > kind.axis and wanted.shape[kind.axis] == kind.parts[-1].stop:
        for part in kind.parts:
            at = range(part.start, part.stop)
            one, other = np.take(wanted, at, kind.axis), np.take(got, at, kind.axis)
            yield one, other, part.floor.of(one.size)
        return
    yield wanted, got, 0.0 if kind is None else kind.floor.of(wanted.size)


def _error(wanted: Array, got: Array, floor: float) -> float:
    relative, norm = rel_l2(wanted, got), float(np.linalg.norm(wanted.astype(np.float64)))
    if not floor > norm or not np.isfinite(got).all():
        return relative
    return float(np.linalg.norm(got.astype(np.float64) - wanted)) / floor


def _rows(names: Sequence[str], kinds: Mapping[str, Any], reference: Answers, answer: Answers) -> float:
    """Each row with the nearest one of the other side that no nearer row took; the order says nothing."""
    wanted = [_as_rows(reference[name], kinds[name].axis) for name in names]
    got = [_as_rows(answer[name], kinds[name].axis) for name in names]
    n, m = len(wanted[0]), len(got[0])
    if not n and not m:
        return 0.0
    far = np.zeros((n, m))
    for one, other in zip(wanted, got, strict=True):
        if one.dtype.kind == "f" and one.shape[1]:
            size = (float(np.sqrt(np.mean(np.square(one.astype(np.float64))))) or 1.0) * math.sqrt(one.shape[1])
            far += np.square((one[:, None].astype(np.float64) - other[None]) / size).sum(-1)
        elif one.shape[1]:
            far += np.where((one[:, None] != other[None]).any(-1), np.inf, 0.0)
    places, taken = np.full(n, -1), np.zeros(m, dtype=bool)
    for at in np.argsort(far, axis=None, kind="stable"):
        row, column = divmod(int(at), m)
        if far[row, column] > FAR**2:
            break
        if places[row] < 0 and not taken[column]:
            places[row], taken[column] = column, True
    kept = places >= 0
    changed = max(n, m) - np.count_nonzero(kept)
    if n == m:
        changed -= np.count_nonzero(_tied_for_last(names, kinds, reference, n)[~kept])
    if changed > CHANGED * max(n, m, LIST):
        return math.inf
    floats = [(one[kept], other[places[kept]]) for one, other in zip(wanted, got, strict=True) if one.dtype.kind == "f"]
    return max((rel_l2(one.astype(np.float32), other.astype(np.float32)) for one, other in floats), default=0.0)


def _tied_for_last(names: Sequence[str], kinds: Mapping[str, Any], reference: Answers, rows: int) -> Array:
    """Where a list by scores ends among equals, which of them it takes says nothing."""
    scored = kinds[names[0]].scored
    if scored not in reference or np.size(reference[scored]) != rows:
        return np.zeros(rows, bool)
    batch = math.prod(np.shape(reference[names[0]])[: kinds[names[0]].axis])
    scores = np.asarray(reference[scored], np.float64).reshape(batch, rows // batch)
    last, best = scores[:, -1:], abs(scores).max(axis=1, keepdims=True)
    tied: Array = (abs(scores - last) <= TIED * best).ravel()
    return tied


def _as_rows(array: Any, axis: int) -> Array:
    array = np.asarray(array)
    axis %= array.ndim
    lead = math.prod(array.shape[: axis + 1])
    rows: Array = array.reshape(lead, -1) if array.size else array.reshape(lead, 0)
    return rows
