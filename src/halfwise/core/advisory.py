"""A known defect or surprise of a runtime, as documents tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from halfwise.core.document import Record, about
from halfwise.core.notes import Note

__all__ = ["AdvisoryRecord"]


class AdvisoryRecord(Record, frozen=True):
    """A known defect or surprise that can concern a target and a model."""

    id: str
    kind: str
    applies: Literal["yes", "maybe"]
    why: str
    symptom: str
    fixed_in: str | None
    workaround: str
    source: Sequence[str]
    confidence: Literal["high", "medium", "low"]
    note: str | None
    because: Annotated[Sequence[Note], about("`why` as data.")] = ()
