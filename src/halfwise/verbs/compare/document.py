"""The document of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from halfwise.core.document import Count, Document, Record, about
from halfwise.core.notes import Note

__all__ = ["ChangeRecord", "CompareDocument", "Direction", "Kind", "SectionRecord", "Value"]

Direction = Literal["better", "worse", "changed"]
Kind = Literal["fix", "scan", "trace", "audit", "plan", "machine"]
Value = float | str | None
_Shown = Annotated[float | str | None, about("A number, a word or none.")]


class ChangeRecord(Record, frozen=True):
    """One difference."""

    name: Annotated[str, about("Of what: an output, a node, a tensor.")]
    what: Annotated[str, about("Which property of it.")]
    before: _Shown
    after: _Shown
    direction: Direction
    note: str
    because: Annotated[Sequence[Note], about("The note as data.")] = ()


class SectionRecord(Record, frozen=True):
    """Changes of one kind, what got worse first."""

    id: str
    title: str
    changes: Sequence[ChangeRecord]


class CompareDocument(Document, frozen=True, tag="halfwise.compare/1"):
    """What `halfwise compare --json` prints: two documents of one kind side by side."""

    kind: Kind
    a: str
    b: str
    better: Count
    worse: Count
    sections: Sequence[SectionRecord]
