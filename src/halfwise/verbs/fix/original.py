"""A typed model beside its FP32 original: its weights put back, its outputs judged by the original's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from halfwise.core.english import say
from halfwise.core.errors import InputError
from halfwise.core.evaluation import evaluate
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance import Tolerance
from halfwise.core.wording import counted, listed
from halfwise.model.fp32_model import fp32_model, typed_notes
from halfwise.model.model import Model, load
from halfwise.model.restored import Restored, check_interface, restored

__all__ = ["Original", "check_floor", "original_notes", "put_back", "with_original"]

Answers = Sequence[Mapping[str, NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class Original:
    """The original, and what of it went into the model."""

    model: Model
    weights: Restored

    @property
    def name(self) -> str:
        return self.model.path.name if self.model.path else "the reference"


def with_original(model: Model, given: str | Path | onnx.ModelProto | Model) -> Original:
    """The original of a model, which has to take the same inputs and give the same outputs."""
    original = fp32_model(given if isinstance(given, Model) else load(given))
    check_interface(model, original)
    return Original(original, restored(model, original))


def put_back(model: Model, given: str | Path | onnx.ModelProto | Model | None) -> tuple[Model, tuple[Note, ...]]:
    """The model with its original's weights, and what is to be said of them; as it is where no original is given."""
    if given is None:
        return model, typed_notes(model)
    original = with_original(model, given)
    return original.weights.model, tuple(original_notes(original))


def check_floor(original: Original, right: Answers, own: Answers, tolerance: Tolerance) -> None:
    """Refuse a model that misses the tolerance in FP32 already: no choice of formats mends it."""
    verdict = evaluate(right, own, tolerance, None).verdict
    if verdict.met or tolerance.uses_user_metric:
        return
    told = "".join(
        f"; {counted(len(names), 'weight')} {how} ({listed(names)})"
        for names, how in (
            (original.weights.differing, "of other values than by rounding"),
            (original.weights.unknown, f"that {original.name} does not have"),
        )
        if names
    )
    raise InputError(
        f"the model misses the tolerance against {original.name} in FP32 already: {say(verdict.because)}{told}. "
        f"Fix {original.name} itself"
    )


def original_notes(original: Original) -> Iterator[Note]:
    weights = original.weights
    yield Note.of(NoteKind.WEIGHTS_RESTORED, original.name, taken=len(weights.taken), weights=weights.weights)
    if weights.differing:
        count = len(weights.differing)
        yield Note.of(NoteKind.WEIGHTS_DIFFER, original.name, count=count, names=weights.differing)
    if weights.unknown:
        yield Note.of(NoteKind.WEIGHTS_UNKNOWN, original.name, count=len(weights.unknown), names=weights.unknown)
