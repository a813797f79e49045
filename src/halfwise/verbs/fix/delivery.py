"""Judge and write; once more where what was written does not run, or runs wrong, with the nodes that mend it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from halfwise.core.notes import Note
from halfwise.verbs.fix.delivered import Delivered, beside_fp32, run_delivered
from halfwise.verbs.fix.feedback import Feedback
from halfwise.verbs.fix.judge import Judgement, judge
from halfwise.verbs.fix.prepare import Prepared
from halfwise.verbs.fix.runnable import runnable
from halfwise.verbs.fix.write import Written, write

__all__ = ["Delivery", "deliver"]

CORRECTIONS = 2  # what runs at last may yet be wrong


@dataclass(frozen=True, eq=False)
class Delivery:
    """What stands, what was measured of it, what was written, and how that ran: None where nothing was written."""

    found: Feedback
    judged: Judgement
    written: Written
    delivered: Delivered | None

    @property
    def fails(self) -> bool:
        """Whether it does not run as written, or misses what the emulation keeps."""
        delivered = self.delivered
        return delivered is not None and (delivered.fails or (delivered.refutes and self.judged.measured.verdict.met))

    @property
    def notes(self) -> tuple[Note, ...]:
        told = self.delivered.note if self.delivered is not None else None
        return (told,) if told is not None else ()


def deliver(prepared: Prepared, found: Feedback) -> Delivery:
    delivery = _delivered(prepared, found)
    for _ in range(CORRECTIONS):
        if prepared.request.plan is not None or delivery.delivered is None or not delivery.fails:
            break
        corrected = runnable(prepared, delivery.found, delivery.delivered)
        if isinstance(corrected, Note):
            told = replace(delivery.delivered, counts=False, note=corrected)
            return replace(delivery, delivered=told)
        if corrected is None:
            break
        delivery = _delivered(prepared, corrected)
    if delivery.delivered is not None and delivery.delivered.fails:
        return replace(delivery, delivered=beside_fp32(prepared, delivery.found.candidate, delivery.delivered))
    return delivery


def _delivered(prepared: Prepared, found: Feedback) -> Delivery:
    counter = prepared.context.counter
    before = counter.samples
    judged = judge(prepared, found)
    counter.judged(counter.samples - before)
    prepared.request.model.stamps.check()
    written = write(prepared, found)
    typed = written.files.typed
    delivered = run_delivered(prepared, found.candidate, typed) if typed is not None else None
    return Delivery(found, judged, written, delivered)
