"""What the journal keeps of a step: that it was begun, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import field

from halfwise.core.document import LEFT_OUT, Count, Left, Record
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note
from halfwise.search.journal_entries import Ratio

__all__ = ["StepEntry"]


class StepEntry(Record, frozen=True):
    """`starts`: how often it was begun without coming to its end."""

    state: Literal["new", "started", "interrupted", "good", "bad", "failed"]
    starts: Count = 0
    note: Note | Left = LEFT_OUT
    load: Ratio | None = None
    steps: tuple[Ratio, ...] = ()
    outputs: Mapping[str, Metrics] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.state in ("good", "bad", "failed")
