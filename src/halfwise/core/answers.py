"""What the FP32 model answers: whether there is anything in it to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import pieces, tensors_in
from halfwise.core.errors import InputError
from halfwise.core.metrics import is_float
from halfwise.core.notes import Note, NoteKind
from halfwise.core.wording import counted

__all__ = ["check_answers", "only_not_finite", "only_zero", "suspects"]


def check_answers(
    answers: Sequence[Mapping[str, NDArray[Any]]],
    notes: Sequence[Note] = (),
    lost_from: Callable[[], str] = lambda: "",
) -> None:
    """Refuse inputs for which FP32 itself has no answer, or no finite one. `notes` are those of the inputs; `lost_from`
    says where the last finite value is lost."""
    arrays = [array for answer in answers for array in tensors_in(answer.values())]
    if not any(np.size(array) for array in arrays):
        raise InputError("the FP32 model's own outputs are empty for every input: nothing can be compared; give others")
    if only_not_finite(answers):
        told = f"the FP32 model's own outputs hold no finite value for any input{lost_from()}"
        raise InputError(f"{told}: check {suspects(notes)}")


def only_not_finite(answers: Sequence[Mapping[str, NDArray[Any]]]) -> bool:
    """Whether there are float values, and all of them are infinite or NaN."""
    arrays = [array for answer in answers for array in tensors_in(answer.values())]
    floats = [array for array in arrays if is_float(array.dtype) and array.size]
    return bool(floats) and not any(_any_finite(array) for array in floats)


def _any_finite(array: NDArray[Any]) -> bool:
    return any(np.isfinite(piece.astype(np.float64)).any() for piece in pieces(array))


def only_zero(answers: Sequence[Mapping[str, NDArray[Any]]], names: Iterable[str]) -> list[str]:
    """The outputs of these that are 0 everywhere, for every input: an error of theirs would say nothing."""
    return [
        name
        for name in names
        if (arrays := [array for answer in answers for array in tensors_in([answer[name]]) if array.size])
        and all(is_float(array.dtype) and not array.any() for array in arrays)
    ]


def suspects(notes: Sequence[Note]) -> str:
    """The inputs to check where no answer is finite: by name where they themselves are not."""
    told = "input {!r}, itself not finite in {} of {}"
    named = (
        told.format(note.subject, note.values["bad"], counted(note.values["samples"], "sample"))
        for note in notes
        if note.kind is NoteKind.SAMPLES_NOT_FINITE
    )
    return "; ".join(named) or "the inputs"
