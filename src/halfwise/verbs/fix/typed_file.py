"""What is said of a file that is typed already, and what of its types the target cannot keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Target
from halfwise.core.wording import listed
from halfwise.model.families import QUANTISERS
from halfwise.model.fp32_model import typed_notes
from halfwise.model.model import Model
from halfwise.verbs.scan import scan

__all__ = ["because_stored", "held_outputs", "kept_interface", "notes_on_file"]

_INFINITE, _LARGEST = "HW105", "HW108"


def kept_interface(target: Target, model: Model) -> tuple[Model, tuple[Note, ...]]:
    """Inputs and outputs in a format that the target lacks are handed over in FP32."""
    lost = {name: fmt for name, fmt in model.interface.items() if not target.supports(fmt)}
    if not lost:
        return model, ()
    formats = sorted({fmt.value.upper() for fmt in lost.values()})
    note = Note.of(NoteKind.IO_WIDENED, target.title, names=list(lost), formats=formats)
    kept = {name: fmt for name, fmt in model.interface.items() if name not in lost}
    return replace(model, interface=kept), (note,)


def held_outputs(
    model: Model, answers: Sequence[Mapping[str, NDArray[Any]]], io: Format
) -> tuple[Model, tuple[Note, ...]]:
    """Outputs whose FP32 values are beyond the format in which they would be handed over: they are in FP32."""
    notes, formats = [], {}
    for name in model.output_names:
        given, first = model.interface.get(name, io), answers[0][name]
        if given is Format.FP32 or not isinstance(first, np.ndarray) or first.dtype != np.float32:
            continue  # a sequence, or no floats
        finite = [array[np.isfinite(array)] for array in (each[name] for each in answers)]
        largest = max(float(np.abs(values).max(initial=0.0)) for values in finite)
        if largest > given.max:
            formats[name] = Format.FP32
            notes.append(Note.of(NoteKind.OUTPUT_WIDENED, name, largest=largest, format=given.value.upper()))
    return (replace(model, interface={**model.interface, **formats}), tuple(notes)) if notes else (model, ())


def notes_on_file(model: Model) -> Iterator[Note]:
    """Its types, and the weights that its formats had no room for."""
    if model.given is None:
        return
    yield from typed_notes(model)
    for found in scan(model).findings:
        if found.rule in (_INFINITE, _LARGEST):
            yield Note.of(NoteKind.STORED_WEIGHT, found.where.name, rule=found.rule, message=found.message)


def because_stored(model: Model) -> InputError | None:
    """Why a typed file gives nothing finite, where its weights are the reason."""
    found = scan(model).findings if model.given is not None else ()
    lost = [each.where.name for each in found if each.rule == _INFINITE]
    if not lost:
        return None
    remedy = "give its FP32 original with --reference"
    if _only_scales(model, frozenset(lost)):  # which the original does not have
        remedy = "quantise again with scales in FP32 (ModelOpt: --high_precision_dtype fp32), and give that model"
    return InputError(f"the model's outputs hold no finite value: it stores {listed(lost)} as infinity; {remedy}")


def _only_scales(model: Model, names: AbstractSet[str]) -> bool:
    read = (node.op_type for value in model.initializers() if value.name in names for node, _ in value.uses())
    return all(op in QUANTISERS for op in read)
