"""What is said where most of the arithmetic stays in FP32: what pins it, what is not built, or which measure may need
less."""

from __future__ import annotations

import onnx_ir as ir

from halfwise.core.notes import Note, NoteKind
from halfwise.core.output_kinds import Reading
from halfwise.core.tolerance import Tolerance
from halfwise.model.model import Model
from halfwise.model.outputs.units import axis_of_classes
from halfwise.verbs.fix.cost import Arithmetic, computes_double
from halfwise.verbs.fix.measurement import FixMeasurement

__all__ = ["mostly_fp32"]

MOST = 0.5  # of the arithmetic

_HELPS = {
    Reading.ROWS: ("boxes", "keypoints"),
    Reading.SELECTED_FROM: ("boxes", "keypoints"),
}
_CHOSEN = (Reading.CHOICES, Reading.COUNTED)
_NUMBERS = ("PKG.MOD:FN",)  # only its user knows how wrong a number may be
_ANY = ("boxes", "mask", "logits", "text", "audio", "image", "embedding")


def mostly_fp32(
    model: Model, tolerance: Tolerance, measured: FixMeasurement, arithmetic: Arithmetic, near: bool
) -> tuple[Note, ...]:
    """Nothing where the inputs themselves are lost in FP16: no measure helps there. `near`: an input near those given
    was searched with, which may be what asks for FP32."""
    if arithmetic.pinned > MOST and (site := arithmetic.most_pinned) is not None:
        what = f"{site.op} in FP64" if computes_double(site.node) else site.op
        return (Note.of(NoteKind.MOST_PINNED, site.name, share=arithmetic.pinned, what=what),)
    lost = measured.input_findings and not measured.verdict.met
    if near and arithmetic.kept - arithmetic.built > MOST and measured.fp16_verdict.met:
        return (Note.of(NoteKind.MOST_FOR_NEAR, share=arithmetic.kept),)
    if arithmetic.kept <= MOST or tolerance.uses_user_metric or lost:
        return ()
    if arithmetic.kept - arithmetic.built <= MOST and (site := arithmetic.most_built) is not None:
        return (Note.of(NoteKind.MOST_FOR_COMPILER, site.name, share=arithmetic.built, op=site.op),)
    output = measured.fp16_verdict.worst_output
    reading = next((kind.reading for kind in tolerance.kinds if kind.output == output), Reading.VALUES)
    value = next((each for each in model.graph.outputs if each.name == output), None)
    known = _of_choices(value) if reading in _CHOSEN else _HELPS.get(reading) or _by_classes(value)
    advice = known or _by_places(model, output) or (_NUMBERS if _is_numbers(value) else _ANY)
    return (Note.of(NoteKind.MOST_FOR_MEASURE, output, share=arithmetic.kept, advice=advice),)


def _of_choices(value: ir.Value | None) -> tuple[str, ...]:
    """For classes: of pixels, or of tokens and codes; behind three axes, either."""
    if value is None or value.shape is None or value.dtype is ir.DataType.BOOL:
        return ("mask",)
    return ("mask", "text") if len(value.shape) > 2 else ("text",)


def _by_classes(value: ir.Value | None) -> tuple[str, ...]:
    """For scores of classes: of a whole input, of each pixel, or of each step of a text."""
    axis, shape = (None, None) if value is None else (axis_of_classes(value), value.shape)
    if axis is None or shape is None or len(shape) < 2:
        return ()
    if axis == -1:
        return ("logits",) if len(shape) == 2 else ("text", "logits")
    return ("mask",) if axis == -3 else ()


def _is_numbers(value: ir.Value | None) -> bool:
    """One for each input, or for all."""
    shape = None if value is None else value.shape
    return shape is not None and (len(shape) < 2 or (len(shape) == 2 and shape[-1] == 1))


def _by_places(model: Model, output: str) -> tuple[str, ...]:
    """For rows of four numbers with a score each, and for rows of two or three: corners of boxes, and points."""
    sizes = {value.name: list(value.shape) for value in model.graph.outputs if value.shape is not None}
    own = sizes.pop(output, [])
    if len(own) > 1 and own[-1] in (2, 3):
        return ("keypoints",)
    return ("boxes",) if len(own) > 1 and own[-1] == 4 and any(own[-2] in each[-2:] for each in sizes.values()) else ()
