"""What there is to say where the answer is predicted to be slower than FP32."""

from __future__ import annotations

from collections.abc import Iterator

from halfwise.core.document import Left
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.search.speed import LEAST_GAIN
from halfwise.verbs.fix.document import LatencyRecord
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["slower_notes"]


def slower_notes(prepared: Prepared, predicted: LatencyRecord | Left) -> Iterator[Note]:
    """A search that was not asked for the fastest set may be."""
    speed = prepared.context.speed
    if not isinstance(predicted, LatencyRecord) or speed is None or speed.guides or prepared.request.plan is not None:
        return
    if predicted.fixed_ms > predicted.fp32_ms * (1 + LEAST_GAIN):
        as_fp16 = predicted.fixed_ms <= predicted.fp16_ms * (1 + LEAST_GAIN)  # no FP32 node is to blame
        if as_fp16 and prepared.request.io_types is not Format.FP16:
            yield Note.of(NoteKind.SLOWER_BY_CASTS, fixed=predicted.fixed_ms, wide=predicted.fp32_ms)
        else:
            yield Note.of(NoteKind.SLOWER_THAN_FP32, fixed=predicted.fixed_ms, wide=predicted.fp32_ms)
