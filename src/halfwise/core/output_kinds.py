"""What an output holds, and so how its error is measured where the user states nothing: one frozen record an output."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import pieces
from halfwise.core.document import LEFT_OUT, Count, Left, Number, Record, about
from halfwise.core.notes import Note, NoteKind

__all__ = ["NO_AXIS", "Floor", "OutputKind", "OutputKinds", "Part", "Reading", "inner_names", "kind_notes"]

Array = NDArray[Any]

NO_AXIS = -(1 << 31)  # of a choice by comparison


class Reading(Enum):
    """How an output is read."""

    VALUES = "values"  # one relative error
    PARTS = "parts"  # slices in different units, each with its own relative error; the worst counts
    CHOICES = "choices"  # class ids or a mask: only what FP32 itself decided clearly counts
    COUNTED = "counted"  # class ids of which the user's own bound counts every difference
    ROWS = "rows"  # selected rows, matched before they are compared
    SELECTED_FROM = "selected-from"  # a tensor inside the model, from which rows are selected


class Floor(Record, frozen=True):
    """The smallest size that an error is relative to: a norm, or a root mean square times that of the elements."""

    norm: Number = 0.0
    rms: Number = 0.0

    def of(self, elements: int) -> float:
        return max(float(self.norm), float(self.rms) * math.sqrt(elements))


class Part(Record, frozen=True):
    """The slice `start:stop` of an output along its kind's axis."""

    start: Count
    stop: Count
    floor: Floor = Floor()


class OutputKind(Record, frozen=True):
    """One output and how it is judged; what is left out does not apply to its reading."""

    output: str
    reading: Reading
    floor: Floor = Floor()
    axis: Annotated[int, about("Of the parts, of the rows, or of the classes that are chosen from.")] = 0
    parts: tuple[Part, ...] = ()
    together: Annotated[tuple[str, ...], about("The outputs whose rows are matched together.")] = ()
    selected_from: Annotated[tuple[str, ...], about("The tensors from which the rows are selected.")] = ()
    scored: Annotated[str, about("The tensor with a score a row; a row near the last score may change.")] = ""
    decided_by: Annotated[tuple[str, ...], about("The tensors whose comparison makes the choice.")] = ()
    threshold: Annotated[Number, about("What the only one of them is compared with.")] = 0.0
    inner: Annotated[tuple[str, ...], about("Of these tensors, those that are no outputs of the model.")] = ()
    noise: Annotated[Number, about("FP32's own error in them, relative to their root mean square.")] = 0.0
    filler: Annotated[Number | Left, about("What masked places hold; the others are judged by themselves.")] = LEFT_OUT

    def __post_init__(self) -> None:
        if mistake := _mistake(self):
            raise ValueError(f"output {self.output!r} cannot be read as {self.reading.value}: {mistake}")

    def filled(self, reference: Array) -> NDArray[np.bool_] | None:
        """The places that hold no answer; None where all do."""
        places = None if self.filler is LEFT_OUT else np.asarray(reference == reference.dtype.type(self.filler))
        return places if places is not None and places.any() else None

    def slices(self, array: Array) -> tuple[tuple[str, Array, Floor], ...]:
        """The parts of an output, each with what to call it."""
        if self.reading is not Reading.PARTS:
            return (("", array, self.floor),)
        axis = self.axis % array.ndim
        before, after = ":, " * axis, ", :" * (array.ndim - axis - 1)
        return tuple(
            (
                f"[{before}{part.start}:{part.stop}{after}]",
                array[(slice(None),) * axis + (slice(part.start, part.stop),)],
                part.floor,
            )
            for part in self.parts
        )

    def sizes(self, array: Array) -> Array | float:
        """What an error is relative to, element by element: the norm of its part, or the floor."""
        if self.reading is not Reading.PARTS:
            filled = self.filled(array)
            return _norm(array if filled is None else array[~filled], self.floor)
        sizes = np.empty(array.shape[self.axis])
        for part, (_, values, floor) in zip(self.parts, self.slices(array), strict=True):
            sizes[part.start : part.stop] = _norm(values, floor)
        shape = [1] * array.ndim
        shape[self.axis] = -1
        return sizes.reshape(shape)


def _mistake(kind: OutputKind) -> str:
    """What a reading lacks that is not there by itself."""
    if kind.reading in (Reading.CHOICES, Reading.COUNTED) and not kind.decided_by:
        return "'decided_by' names no tensor"
    if kind.reading is Reading.ROWS and kind.output not in kind.together:
        return "'together' does not name it"
    if kind.reading is Reading.PARTS and not _cover(kind.parts):
        return "its parts are not one behind the other from 0"
    if kind.reading in (Reading.PARTS, Reading.ROWS) and kind.axis < 0:
        return f"axis {kind.axis} is negative"
    return ""


def _cover(parts: Sequence[Part]) -> bool:
    """Whether each begins where the one before it ends."""
    starts = [0, *(part.stop for part in parts)]
    return bool(parts) and all(part.start == at <= part.stop for part, at in zip(parts, starts, strict=False))


OutputKinds = Annotated[Sequence[OutputKind], about("How outputs are read that the tolerance says nothing else of.")]


def _norm(values: Array, floor: Floor) -> float:
    squares = (np.square(piece[np.isfinite(piece)], dtype=np.float64).sum() for piece in pieces(values))
    return max(math.sqrt(math.fsum(squares)), floor.of(values.size))


def inner_names(kinds: Sequence[OutputKind]) -> tuple[str, ...]:
    """The tensors inside the model that have to be known to judge its outputs."""
    return tuple(dict.fromkeys(name for kind in kinds for name in kind.inner))


def kind_notes(kinds: Sequence[OutputKind], judged: Collection[str] | None = None) -> tuple[Note, ...]:
    """What the result says of each kind: which measure, and why. `judged`: the tensors that are, where not all are."""
    return tuple(note for kind in kinds for note in _told(kind, judged))


def _told(kind: OutputKind, judged: Collection[str] | None) -> list[Note]:
    if kind.reading is Reading.PARTS:
        spans = [f"{part.start}:{part.stop}" for part in kind.parts]
        return [Note.of(NoteKind.OUTPUT_IN_PARTS, kind.output, axis=kind.axis, spans=spans)]
    if kind.filler is not LEFT_OUT:
        return [Note.of(NoteKind.OUTPUT_FILLED, kind.output, filler=kind.filler)]
    if kind.reading is Reading.CHOICES:
        return [Note.of(NoteKind.OUTPUT_CHOICES, kind.output, tensors=kind.decided_by)]
    if kind.reading is Reading.ROWS and kind.together[0] == kind.output:
        sources = [name for name in kind.selected_from if judged is None or name in judged]
        if not sources:
            return [Note.of(NoteKind.OUTPUT_MATCHED, kind.output, outputs=kind.together)]
        return [Note.of(NoteKind.OUTPUT_ROWS, kind.output, outputs=kind.together, tensors=sources)]
    return []
