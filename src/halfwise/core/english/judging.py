"""What decided a verdict, why an output cannot be compared place by place, and what autocast is needed for."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["JUDGING"]

JUDGING = {
    NoteKind.NOTHING_JUDGED: "the model has no output that the tolerance speaks of",
    NoteKind.NOT_FINITE: "{count:many value} of {subject!r} {count:are} not finite, where FP32 has finite ones",
    NoteKind.AUTOCAST_UNNEEDED: "{subject} keeps the tolerance in FP16, with autocast and without it",
    NoteKind.AUTOCAST_MISSES: ("{subject} misses the tolerance even under autocast: its FP32 operators are not enough"),
    NoteKind.AUTOCAST_NEEDED: (
        "{subject} is right under autocast and wrong in FP16, for autocast keeps in FP32: {names:commas}"
    ),
    NoteKind.AUTOCAST_TOGETHER: (
        "{subject} is right under autocast and wrong in FP16: no single FP32 operator of autocast is the cause, only "
        "all of them together"
    ),
    NoteKind.NOT_COMPARED: "{subject!r} cannot be compared place by place: {why:said}",
    NoteKind.ERROR_OF: "{metric} of {subject!r} is {value:.3g}, allowed <= {allowed:.3g}",
    NoteKind.LIKENESS_OF: "{metric} of {subject!r} is {value:.3g}, allowed >= {allowed:.3g}",
    NoteKind.MEASURED_BY: "{subject} is {value:.3g}, allowed <= {allowed:.3g}",
    NoteKind.MEASURED_BY_YOU: "your metric is {value:.3g}, allowed <= {allowed:.3g}",
    NoteKind.OTHER_SHAPE: "shape {got:shape} instead of {wanted:shape}",
    NoteKind.OTHER_CONTENT: "{got} instead of {wanted}",
    NoteKind.HOLDS_TENSORS: "{count:many tensor}",
    NoteKind.HOLDS_TENSOR: "a tensor",
    NoteKind.HOLDS_NOTHING: "nothing",
}
