"""The one place that decides how an output is judged, from the graph and the FP32 answers on the samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace
from numpy.typing import NDArray

from halfwise.core.contents import pieces
from halfwise.core.float_sum import float_sum
from halfwise.core.metrics import is_float
from halfwise.core.output_kinds import NO_AXIS, Floor, OutputKind, Part, Reading
from halfwise.model.model import Model
from halfwise.model.outputs.fillers import filler_of
from halfwise.model.outputs.selections import Choice, Selection, choice_of, selections_behind, selects
from halfwise.model.outputs.units import Piece, is_probability, pieces_along

__all__ = ["OutputFacts", "facts_of", "kinds_of", "sized_anew"]

Array = NDArray[Any]
Answers = Sequence[Mapping[str, Array]]

FLOOR = 0.1  # of an output's usual size: a sample below it is judged by the floor
APART = 100.0  # between the sizes of slices: their units differ
ALIKE = 10.0  # between neighbouring slices: one unit
SHORT = 16  # slices of an axis that are looked at one by one
LEAST = 1e-6  # of the largest slice: a smaller one is empty
ROUNDOFF = 2.0**-24
SAFETY = 4.0  # times the rounding of FP32 that is to be expected: closer than this nothing is decided


@dataclass(frozen=True)
class OutputFacts:
    """What the graph says of the outputs; `inner` names the tensors inside the model to look at with the answers."""

    model: Model
    selections: Mapping[str, tuple[Selection, ...]]
    choices: Mapping[str, Choice]

    @property
    def inner(self) -> tuple[str, ...]:
        names = [name for choice in self.choices.values() for name in choice.decided_by]
        for each in (selection for found in self.selections.values() for selection in found):
            names += [each.counted, *each.entering]
        return tuple(dict.fromkeys(name for name in names if name not in self.model.output_names))


def facts_of(model: Model) -> OutputFacts:
    tensors = [value for value in model.graph.outputs if isinstance(value.type, ir.TensorType)]
    selecting = tensors if any(map(selects, model.nodes)) else ()  # a decoder has an output for each of its caches
    selections = {value.name or "": selections_behind(value) for value in selecting}
    choices = {value.name or "": choice_of(value) for value in tensors}
    return OutputFacts(
        model,
        {name: found for name, found in selections.items() if found},
        {name: found for name, found in choices.items() if found is not None},
    )


def kinds_of(facts: OutputFacts, answers: Answers) -> tuple[OutputKind, ...]:
    """How each output is judged; an output that is not named is compared as a whole, and has no floor."""
    rows = _rows(facts, answers)
    kinds = list(rows)
    known = {kind.output for kind in rows}
    for value in facts.model.graph.outputs:
        name = value.name or ""
        if name in known or not isinstance(answers[0].get(name), np.ndarray):
            continue
        if name in facts.choices:
            kinds.append(_choice(facts, name))
        elif is_float(answers[0][name].dtype):
            kinds += _values(value, [answer[name] for answer in answers])
    return tuple(_with_inner(kind, set(facts.model.output_names)) for kind in kinds)


def sized_anew(kinds: Sequence[OutputKind], answers: Answers) -> tuple[OutputKind, ...]:
    """The same readings with the usual sizes of these answers, as of a model with other weights."""
    arrays = {kind.output: [answer.get(kind.output) for answer in answers] for kind in kinds}
    known = {name for name, found in arrays.items() if all(isinstance(array, np.ndarray) for array in found)}
    return tuple(_sized(kind, arrays[kind.output]) if kind.output in known else kind for kind in kinds)


def _sized(kind: OutputKind, arrays: Sequence[Any]) -> OutputKind:
    def sized(floor: Floor, values: Sequence[Array]) -> Floor:
        return _floor(values, probability=False) if floor.rms else floor

    def part(each: Part) -> Part:
        values = [_sliced(array, each.start, each.stop, kind.axis) for array in arrays]
        return replace(each, floor=sized(each.floor, values))

    judged = [array if (filled := kind.filled(array)) is None else array[~filled] for array in arrays]
    return replace(kind, floor=sized(kind.floor, judged), parts=tuple(map(part, kind.parts)))


def _with_inner(kind: OutputKind, outputs: set[str]) -> OutputKind:
    needed = (kind.output, *kind.decided_by, kind.scored)
    return replace(kind, inner=tuple(name for name in dict.fromkeys(needed) if name and name not in outputs))


# -- sizes and units --------------------------------------------------------------------------------------------------


def _values(value: ir.Value, arrays: Sequence[Array]) -> Iterator[OutputKind]:
    name, filler = value.name or "", None if is_probability(value) else filler_of(arrays)
    if filler is not None:
        answers = [array[array != array.dtype.type(filler)] for array in arrays]
        yield OutputKind(name, Reading.VALUES, _floor(answers, probability=False), filler=filler)
        return
    floor = _floor(arrays, probability=is_probability(value))
    found = None if is_probability(value) else _parts(value, arrays)
    if found is not None:
        axis, parts = found
        yield OutputKind(name, Reading.PARTS, floor, axis, parts)
    elif floor != Floor():
        yield OutputKind(name, Reading.VALUES, floor)


def _floor(arrays: Sequence[Array], *, probability: bool) -> Floor:
    """One certain answer for probabilities; else a part of the size that is usual among the samples.

    In five digits: those behind them hang on the number of threads that summed, and a plan does not.
    """
    if probability:
        return Floor(norm=1.0)
    usual = _size(arrays)
    return Floor(rms=float(f"{FLOOR * usual:.5g}")) if len(arrays) > 1 and usual > 0 else Floor()


def _size(arrays: Sequence[Array]) -> float:
    """The root mean square over all samples, each counted alike."""
    squares = [_mean_square(array) for array in arrays]
    return math.sqrt(float_sum(squares) / len(squares)) if squares else 0.0


def _mean_square(array: Array) -> float:
    known = [(piece.size, float(np.sum(np.square(piece, dtype=np.float64)))) for piece in map(_known, pieces(array))]
    return math.fsum(total for _, total in known) / max(sum(count for count, _ in known), 1)


def _known(array: Array) -> Array:
    return array[np.isfinite(array)]


def _sliced(array: Array, start: int, stop: int, axis: int) -> Array:
    return array[(slice(None),) * axis + (slice(start, stop),)]


def _within_unit(array: Array) -> bool:
    return all(bool(((known >= 0) & (known <= 1)).all()) for known in map(_known, pieces(array)))


def _parts(value: ir.Value, arrays: Sequence[Array]) -> tuple[int, tuple[Part, ...]] | None:
    """The axis whose slices differ most in size, where their units differ."""
    found: list[tuple[float, int, tuple[Part, ...]]] = []
    rank = arrays[0].ndim
    if value.shape is None or any(array.ndim != rank for array in arrays):
        return None
    for axis in range(1 if rank > 1 else 0, rank):
        units = pieces_along(value, axis)
        if not units or any(array.shape[axis] != units[-1].stop for array in arrays):
            continue
        if len(units) == 1 and 2 <= units[0].stop <= SHORT:
            units = tuple(Piece(at, at + 1, False) for at in range(units[0].stop))
        groups = _groups(units, [[_sliced(array, p.start, p.stop, axis) for array in arrays] for p in units])
        sizes = [group.size for group in groups if group.size > 0]
        if len(groups) > 1 and max(sizes) >= APART * min(sizes):
            found.append((max(sizes) / min(sizes), axis, tuple(group.part(arrays, axis) for group in groups)))
    if not found:
        return None
    _, axis, parts = max(found, key=lambda each: each[0])
    return axis, parts


@dataclass(frozen=True)
class _Group:
    """Neighbouring slices of one unit."""

    start: int
    stop: int
    size: float
    unit: bool  # all of it lies between 0 and 1
    probability: bool

    def part(self, arrays: Sequence[Array], axis: int) -> Part:
        values = [_sliced(array, self.start, self.stop, axis) for array in arrays]
        return Part(self.start, self.stop, _floor(values, probability=self.probability))


def _groups(pieces: Sequence[Piece], slices: Sequence[Sequence[Array]]) -> list[_Group]:
    """Neighbours of about one size are one group; so are neighbours within 0 and 1, and what is empty."""
    sizes = [_size(each) for each in slices]
    empty = LEAST * max(sizes)
    groups: list[_Group] = []
    for piece, values, size in zip(pieces, slices, sizes, strict=True):
        unit = all(map(_within_unit, values))
        size = size if size > empty else 0.0
        last = groups[-1] if groups else None
        alike = last is not None and (
            size == 0.0
            or last.size == 0.0
            or (last.unit and unit)
            or (last.unit == unit and max(size, last.size) < ALIKE * min(size, last.size))
        )
        if last is not None and alike:
            weight, other = last.stop - last.start, piece.stop - piece.start
            joined = math.sqrt((weight * last.size**2 + other * size**2) / (weight + other))
            both = (last.unit or last.size == 0) and (unit or size == 0)
            probability = (last.probability or last.size == 0) and (piece.probability or size == 0)
            groups[-1] = _Group(last.start, piece.stop, joined, both, probability)
        else:
            groups.append(_Group(piece.start, piece.stop, size, unit, piece.probability))
    return groups


# -- selections and choices -------------------------------------------------------------------------------------------


def _choice(facts: OutputFacts, name: str) -> OutputKind:
    choice = facts.choices[name]
    depth = sum(1 for node in facts.model.graph if node.outputs)
    return OutputKind(
        name,
        Reading.CHOICES,
        axis=NO_AXIS if choice.axis is None else choice.axis,
        decided_by=choice.decided_by,
        threshold=choice.threshold,
        noise=SAFETY * ROUNDOFF * math.sqrt(depth),
    )


def _rows(facts: OutputFacts, answers: Answers) -> list[OutputKind]:
    """Outputs with an axis as long as what was selected; those behind one selection are matched together."""
    axes: dict[str, int] = {}
    scored: dict[str, str] = {}
    sources: dict[str, tuple[str, ...]] = {}
    lists: dict[tuple[str, ...], list[str]] = {}
    outputs = {value.name or "": value for value in facts.model.graph.outputs}
    for name, selections in facts.selections.items():
        shape = outputs[name].shape
        found = next(((s, axis) for s in selections if (axis := _row_axis(name, s, answers, shape)) is not None), None)
        if found is None or name in facts.choices:
            continue
        axes[name] = found[1]
        counted = found[0].counted
        listed = found[0].sorted and is_float(answers[0][counted].dtype)
        scored[name] = counted if listed else ""
        sources[name] = tuple(dict.fromkeys(each for s in selections for each in s.entering))
        length = tuple(str(answer[name].shape[found[1]]) for answer in answers)
        lists.setdefault(length, []).append(name)
    kinds = []
    for names in lists.values():
        for name in names:
            values = [answer[name] for answer in answers]
            floor = _floor(values, probability=False) if is_float(values[0].dtype) else Floor()
            kinds.append(
                OutputKind(
                    name,
                    Reading.ROWS,
                    floor,
                    axes[name],
                    together=tuple(names),
                    selected_from=sources[name],
                    scored=scored[name],
                )
            )
    made = {value.name or "": value for node in facts.model.graph for value in node.outputs} if sources else {}
    for inner in dict.fromkeys(each for found in sources.values() for each in found):
        if inner in answers[0] and inner not in facts.model.output_names:
            values, probability = [answer[inner] for answer in answers], is_probability(made[inner])
            kinds.append(OutputKind(inner, Reading.SELECTED_FROM, _floor(values, probability=probability)))
    return kinds


def _row_axis(name: str, selection: Selection, answers: Answers, declared: ir.Shape | None) -> int | None:
    """The axis of an output with an entry for each selected row, or, padded, with at least as many."""
    if any(selection.counted not in answer for answer in answers):
        return None
    ranks = [answer[selection.counted].ndim for answer in answers]
    if any(not -rank <= selection.axis < rank for rank in ranks):  # ONNX Runtime cuts an axis to 32 bits
        return None
    counts = [answer[selection.counted].shape[selection.axis] for answer in answers]
    shapes = [answer[name].shape for answer in answers]
    if len({len(shape) for shape in shapes}) > 1:
        return None
    if max(counts) < 2:  # hardly anything was selected: the only axis whose length is open
        free = [axis for axis, dim in enumerate(declared or ()) if not isinstance(dim, int)]
        fits = len(free) == 1 and all(s[free[0]] == count for s, count in zip(shapes, counts, strict=True))
        return free[0] if fits else None
    for axis in range(len(shapes[0])):
        if all(shape[axis] == count for shape, count in zip(shapes, counts, strict=True)):
            return axis
    if selection.moved and len(set(shapes)) == 1 and len(set(counts)) > 1:  # padded to one length
        longer = [axis for axis in range(max(1, len(shapes[0]) - 1)) if shapes[0][axis] >= max(counts)]
        return longer[0] if longer else len(shapes[0]) - 1 if shapes[0][-1] >= max(counts) else None
    return None
