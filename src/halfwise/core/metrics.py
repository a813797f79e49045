"""How far one output is from its reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from halfwise.core.contents import tensors_in
from halfwise.core.document import Count, Number, Record, about, written
from halfwise.core.notes import Note, NoteKind

__all__ = [
    "ERRORS",
    "LIKENESSES",
    "Metrics",
    "OutputMetric",
    "Outputs",
    "compare",
    "is_float",
    "is_number",
    "no_answer",
    "worst",
    "worst_seen",
]

ERRORS = ("rel_l2", "max_abs", "rms")  # 0 is perfect, smaller is better
LIKENESSES = ("cosine", "psnr", "topk", "exact", "found")  # larger is better

OutputMetric = Callable[[Mapping[str, NDArray[Any]], Mapping[str, NDArray[Any]]], float]
Array = NDArray[Any]

_CHUNK = 1 << 18  # elements widened to FP64 at a time, so that a large output needs no second copy
_TOP = 5
_PART = 128  # entries of a long row whose maximum is looked at first
_LONG = 1 << 13


class Metrics(Record, frozen=True):
    """One output against its reference. No field is ever NaN.

    Places where both are NaN, or both the same infinity, agree: they count in `exact` and in nothing else. Any other
    place with a value that is not finite is a conflict: rel_l2, max_abs, rms, cosine and psnr get their worst value.

    rel_l2     norm of the difference over the norm of the reference; against a zero reference 0 if equal, else inf
    max_abs    largest difference
    rms        root of the mean squared difference
    cosine     of the angle between the two; 1 if equal, 0 if only one of them is all zero
    psnr       20 log10(largest magnitude of the reference / rms), in dB; inf if equal
    topk       share of the k largest entries along the last axis found in both, k = min(5, length - 1), ties either way
    exact      share of equal places
    nonfinite  conflicts where the other value is not finite: inf or NaN that the reference does not have there
    uncompared what kept the two from being compared place by place; a document says it in words, too (`note`)
    found      of rows that are matched: the share found in both, of at least 20
    unfloored  rel_l2 by the reference's own norm, where a larger floor stood in for it; 0 where none did
    part       the slice with the largest rel_l2, where slices are measured apart
    """

    rel_l2: Number
    max_abs: Number
    rms: Number
    cosine: Number
    psnr: Number
    topk: Number
    exact: Number
    nonfinite: Annotated[Count, written("Values that are not finite where the reference is.")] = 0
    note: str = ""
    found: Annotated[Number, about("Of matched rows: the share found in both.")] = 1.0
    unfloored: Annotated[Number, about("rel_l2 without the floor, where one stood in for a smaller reference.")] = 0.0
    part: Annotated[str, about("The slice that rel_l2 is of, where slices are measured apart.")] = ""
    uncompared: Annotated[Sequence[Note], about("What kept the two from being compared, as data.")] = ()

    def to_json(self) -> dict[str, Any]:
        usual = {"note": "", "found": 1.0, "unfloored": 0.0, "part": "", "uncompared": []}
        return {key: value for key, value in super().to_json().items() if key not in usual or value != usual[key]}


Outputs = Annotated[Mapping[str, Metrics], about("By the output's name.")]


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether the type is a real floating-point type, BF16 and FP8 included (NumPy itself knows those as void)."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether the type is a float, an integer of any width or bool."""
    return dtype.kind in "fiub" or (dtype.kind == "V" and "int" in dtype.name) or is_float(dtype)


def compare(reference: Any, other: Any, floor: float = 0.0) -> Metrics:
    """Measure `other` against `reference`, both of any type; arithmetic is in FP64.

    rel_l2 is relative to a norm of at least `floor`.

    Integers and bools are measured like floats. Text has no distance: unless all of it is equal, every metric but
    `exact` has its worst value. Two different shapes give every metric its worst value, and a note; what is not finite
    then counts as far as the other has more of it. Of a sequence the worst tensor counts; one that is lost or new gives
    every metric its worst value, as does an optional that only one of both holds.
    """
    if any(side is None or isinstance(side, list) for side in (reference, other)):
        return _compare_held(reference, other, floor)
    reference, other = np.asarray(reference), np.asarray(other)
    if reference.shape != other.shape:
        return _all_wrong(
            exact=0.0,
            nonfinite=max(_nonfinite(other) - _nonfinite(reference), 0),
            why=(Note.of(NoteKind.OTHER_SHAPE, got=list(other.shape), wanted=list(reference.shape)),),
        )
    if reference.size == 0:
        return _PERFECT
    if not (is_number(reference.dtype) and is_number(other.dtype)):
        exact = np.count_nonzero(reference == other) / reference.size
        return _PERFECT if exact == 1.0 else _all_wrong(exact=exact)

    flat_reference, flat_other = reference.reshape(-1), other.reshape(-1)
    sums = _Sums(_scale(flat_reference, flat_other))
    for a, b in _chunks(flat_reference, flat_other):
        sums.add(a, b)
    return sums.metrics(topk=_topk(reference, other), floor=floor)


def _compare_held(reference: Any, other: Any, floor: float) -> Metrics:
    """Sequences, tensor by tensor, and optionals that hold nothing."""
    if isinstance(reference, list) and isinstance(other, list) and len(reference) == len(other):
        return worst([_PERFECT, *(compare(a, b, floor) for a, b in zip(reference, other, strict=True))])
    if reference is None and other is None:
        return _PERFECT
    return _all_wrong(exact=0.0, why=(Note.of(NoteKind.OTHER_CONTENT, got=_held(other), wanted=_held(reference)),))


def _held(output: Any) -> Note:
    if isinstance(output, list):
        return Note.of(NoteKind.HOLDS_TENSORS, count=len(output))
    return Note.of(NoteKind.HOLDS_NOTHING) if output is None else Note.of(NoteKind.HOLDS_TENSOR)


def no_answer(reference: Any) -> Metrics:
    """What is said of an output that a run could not give: the worst, under any bound."""
    return _all_wrong(exact=0.0, nonfinite=max(sum(array.size for array in tensors_in([reference])), 1))


def worst(metrics: Sequence[Metrics]) -> Metrics:
    """The worst of each field over several samples; `nonfinite` is their sum."""
    if not metrics:
        raise ValueError("there is no worst of no metrics")
    why = tuple(dict.fromkeys(note for each in metrics for note in each.uncompared))
    return Metrics(
        **{name: max(getattr(m, name) for m in metrics) for name in ERRORS},
        **{name: min(getattr(m, name) for m in metrics) for name in LIKENESSES},
        nonfinite=sum(m.nonfinite for m in metrics),
        uncompared=why,
        unfloored=max(m.unfloored for m in metrics),
        part=max(metrics, key=lambda m: m.rel_l2).part,
    )


def worst_seen(metrics: Sequence[Metrics]) -> Metrics:
    """The worst of each field over several ways to compute the same samples, none of whose values counts twice."""
    return structs.replace(worst(metrics), nonfinite=max(m.nonfinite for m in metrics))


_PERFECT = Metrics(rel_l2=0.0, max_abs=0.0, rms=0.0, cosine=1.0, psnr=math.inf, topk=1.0, exact=1.0)


def _all_wrong(*, exact: float, topk: float = 0.0, nonfinite: int = 0, why: tuple[Note, ...] = ()) -> Metrics:
    return Metrics(
        rel_l2=math.inf,
        max_abs=math.inf,
        rms=math.inf,
        cosine=-1.0,
        psnr=-math.inf,
        topk=topk,
        exact=exact,
        nonfinite=nonfinite,
        uncompared=why,
    )


def _nonfinite(array: Array) -> int:
    if not is_float(array.dtype):
        return 0
    flat = array.reshape(-1)
    return sum(int(np.count_nonzero(~np.isfinite(part.astype(np.float64)))) for part, _ in _chunks(flat, flat))


def _chunks(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    for start in range(0, a.size, _CHUNK):
        yield a[start : start + _CHUNK], b[start : start + _CHUNK]


def _scale(a: Array, b: Array) -> float:
    """A power of two to divide by where FP64 values are so large or small that their products are not; else 1."""
    if not any(array.dtype.kind == "f" and array.dtype.itemsize >= 8 for array in (a, b)):
        return 1.0
    top = max(_largest(part) for chunk in _chunks(a, b) for part in chunk)
    return 1.0 if top == 0.0 or 1e-100 < top < 1e100 else math.ldexp(1.0, math.frexp(top)[1] - 1)


def _largest(values: Array) -> float:
    """The largest finite magnitude."""
    magnitude = np.abs(values.astype(np.float64))
    return float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))


def _dot(a: Array, b: Array) -> float:
    """Without BLAS, whose threads cost more than they bring here, and whose sum depends on how many there are."""
    return float(np.einsum("i,i->", a, b))


def _norm(values: Array, top: float) -> float:
    """The Euclidean norm of values with largest magnitude `top`, also where a square would not fit FP64."""
    if top == 0.0:
        return 0.0
    if not 1e-140 < top < 1e140:
        values = values / top
        return top * math.sqrt(_dot(values, values))
    return math.sqrt(_dot(values, values))


@dataclass
class _Sums:
    """What one pass over both arrays gathers; values are divided by `scale`."""

    scale: float
    places: int = 0
    compared: int = 0
    equal: int = 0
    conflicts: int = 0
    nonfinite: int = 0
    difference: float = 0.0  # the norms
    reference: float = 0.0
    other: float = 0.0
    products: list[float] = field(default_factory=list)
    max_abs: float = 0.0
    peak: float = 0.0

    def add(self, reference: Array, other: Array) -> None:
        self.places += reference.size
        if reference.dtype.kind in "iub" and other.dtype.kind in "iub":
            self.equal += int(np.count_nonzero(reference == other))  # 64-bit integers do not fit FP64
            a, b = reference.astype(np.float64), other.astype(np.float64)
        else:
            a, b = self._comparable(reference.astype(np.float64), other.astype(np.float64))
            self.equal += int(np.count_nonzero(a == b))
        if self.scale != 1.0:
            a, b = a / self.scale, b / self.scale
        if a.size == 0:
            return
        difference = b - a
        top_a, top_b, top = (float(np.abs(values).max()) for values in (a, b, difference))
        self.compared += a.size
        self.difference = math.hypot(self.difference, _norm(difference, top))
        self.reference = math.hypot(self.reference, _norm(a, top_a))
        self.other = math.hypot(self.other, _norm(b, top_b))
        self.products.append(_dot(a, b))
        self.max_abs = max(self.max_abs, top)
        self.peak = max(self.peak, top_a)

    def _comparable(self, a: Array, b: Array) -> tuple[Array, Array]:
        """The places where both are finite; the others are counted."""
        finite_a, finite_b = np.isfinite(a), np.isfinite(b)
        both = finite_a & finite_b
        if both.all():
            return a, b
        agreed = ~both & ((a == b) | (np.isnan(a) & np.isnan(b)))
        self.equal += int(np.count_nonzero(agreed))
        self.conflicts += int(np.count_nonzero(~both & ~agreed))
        self.nonfinite += int(np.count_nonzero(~finite_b & ~agreed))
        return a[both], b[both]

    def metrics(self, topk: float, floor: float) -> Metrics:
        exact = self.equal / self.places
        if self.conflicts:
            return _all_wrong(exact=exact, topk=topk, nonfinite=self.nonfinite)
        rms = self.difference / math.sqrt(self.compared) if self.compared else 0.0
        if rms == 0.0:
            return Metrics(0.0, 0.0, 0.0, 1.0, math.inf, topk, exact)
        norms = self.reference * self.other
        size = max(self.reference, floor / self.scale)
        own = self.difference / self.reference if self.reference else math.inf
        return Metrics(
            rel_l2=self.difference / size if size else math.inf,
            max_abs=self.max_abs * self.scale,
            rms=rms * self.scale,
            cosine=min(max(math.fsum(self.products) / norms, -1.0), 1.0) if norms else 0.0,
            psnr=20.0 * (math.log10(self.peak) - math.log10(rms)) if self.peak else -math.inf,
            topk=topk,
            exact=exact,
            unfloored=own if size > self.reference else 0.0,
        )


def _topk(reference: Array, other: Array) -> float:
    length = reference.shape[-1] if reference.ndim else 0
    k = min(_TOP, length - 1)
    if k < 1:
        return 1.0
    rows_a, rows_b = reference.reshape(-1, length), other.reshape(-1, length)
    step = max(1, _CHUNK // length)
    hits = 0
    for start in range(0, len(rows_a), step):
        hits += _shared_top(rows_a[start : start + step], rows_b[start : start + step], k)
    return hits / (len(rows_a) * k)


def _shared_top(a: Array, b: Array, k: int) -> int:
    """How many of the k largest of each row are shared; rounding makes ties, so a tie is broken in favour."""
    top_a, top_b = _top(a, k), _top(b, k)
    return int(np.maximum(_found(top_a, b, top_b), _found(top_b, a, top_a)).sum())


def _top(rows: Array, k: int) -> NDArray[np.intp]:
    """The columns of the k largest of each row, in no order; a long row is searched piece by piece."""
    starts = range(0, rows.shape[1], _CHUNK)
    pieces = [_top_of_piece(_sortable(rows[:, start : start + _CHUNK]), k) + start for start in starts]
    if len(pieces) == 1:
        return pieces[0]
    columns = np.concatenate(pieces, axis=1)
    values = _sortable(np.take_along_axis(rows, columns, axis=1))
    return np.take_along_axis(columns, np.argpartition(values, -k, axis=1)[:, -k:], axis=1)


def _top_of_piece(rows: Array, k: int) -> NDArray[np.intp]:
    """The k largest of a long row are in the k parts of it that have the largest maxima."""
    count, length = rows.shape
    parts = length // _PART
    if length < _LONG:
        kept = min(k, length)
        return np.argpartition(rows, -kept, axis=1)[:, -kept:]
    whole = parts * _PART
    maxima = rows[:, :whole].reshape(count, parts, _PART).max(axis=2)
    best = np.argpartition(maxima, -k, axis=1)[:, -k:, None] * _PART + np.arange(_PART)
    rest = np.broadcast_to(np.arange(whole, length), (count, length - whole))
    columns = np.concatenate([best.reshape(count, -1), rest], axis=1)
    values = np.take_along_axis(rows, columns, axis=1)
    return np.take_along_axis(columns, np.argpartition(values, -k, axis=1)[:, -k:], axis=1)


def _found(top_a: NDArray[np.intp], b: Array, top_b: NDArray[np.intp]) -> NDArray[np.intp]:
    """Per row, the most of the columns `top_a` that one choice of b's k largest can hold."""
    largest = _sortable(np.take_along_axis(b, top_b, axis=1))
    least = largest.min(axis=1, keepdims=True)
    candidates = _sortable(np.take_along_axis(b, top_a, axis=1))
    room_for_ties = top_b.shape[1] - np.count_nonzero(largest > least, axis=1)
    ties = np.count_nonzero(candidates == least, axis=1)
    found: NDArray[np.intp] = np.count_nonzero(candidates > least, axis=1) + np.minimum(ties, room_for_ties)
    return found


def _sortable(values: Array) -> Array:
    if values.dtype.kind in "iu":
        return values
    wide = values.copy() if values.dtype.kind == "f" else values.astype(np.float32)
    wide[np.isnan(wide)] = -np.inf  # NumPy sorts NaN as the largest
    return wide
