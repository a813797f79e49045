"""What decided a verdict, and why an output cannot be compared place by place."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["JUDGING"]

JUDGING = {
    NoteKind.NOTHING_JUDGED: "the model has no output that the tolerance speaks of",
    NoteKind.NOT_FINITE: "{count:,} values of {subject!r} are not finite, where FP32 has finite ones",
    NoteKind.NOT_COMPARED: "{subject!r} cannot be compared place by place: {why:said}",
    NoteKind.ERROR_OF: "{metric} of {subject!r} is {value:.3g}, allowed <= {allowed:.3g}",
    NoteKind.LIKENESS_OF: "{metric} of {subject!r} is {value:.3g}, allowed >= {allowed:.3g}",
    NoteKind.MEASURED_BY: "{subject} is {value:.3g}, allowed <= {allowed:.3g}",
    NoteKind.MEASURED_BY_YOU: "your metric is {value:.3g}, allowed <= {allowed:.3g}",
    NoteKind.OTHER_SHAPE: "shape {got:shape} instead of {wanted:shape}",
    NoteKind.OTHER_CONTENT: "{got} instead of {wanted}",
    NoteKind.HOLDS_TENSORS: "{count} tensors",
    NoteKind.HOLDS_TENSOR: "a tensor",
    NoteKind.HOLDS_NOTHING: "nothing",
}
