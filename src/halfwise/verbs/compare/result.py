"""What a comparison found."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halfwise.core.document import Documented
from halfwise.core.english import said
from halfwise.core.notes import Note
from halfwise.core.summary import Summary
from halfwise.verbs.compare.document import ChangeRecord, CompareDocument, Direction, Kind, SectionRecord, Value

__all__ = ["Change", "Comparison", "Direction", "Section", "Value"]

_ORDER = {"worse": 0, "changed": 1, "better": 2}


@dataclass(frozen=True)
class Change:
    """One difference: of what (`name`: an output, a node, a tensor; `what`: which property), and its two values."""

    name: str
    what: str
    before: Value
    after: Value
    direction: Direction
    because: tuple[Note, ...] = ()

    @property
    def size(self) -> float:
        """How far the two are apart, for what can be measured: the logarithm of their ratio."""
        if not isinstance(self.before, (int, float)) or not isinstance(self.after, (int, float)):
            return math.inf
        small, large = sorted((abs(self.before), abs(self.after)))
        return math.log(large / small) if small > 0 and math.isfinite(large) else math.inf

    def document(self) -> ChangeRecord:
        return ChangeRecord(
            self.name, self.what, self.before, self.after, self.direction, said(self.because), self.because
        )


@dataclass(frozen=True)
class Section:
    """Changes of one kind, what got worse first."""

    id: str
    title: str
    changes: tuple[Change, ...]

    @classmethod
    def of(cls, name: str, title: str, changes: list[Change]) -> Section:
        return cls(name, title, tuple(sorted(changes, key=lambda c: (_ORDER[c.direction], -c.size))))


@dataclass(frozen=True, repr=False)
class Comparison(Documented):
    """Two documents of one kind; `a` is before, `b` after. Sections without a change are left out."""

    kind: Kind
    a: str
    b: str
    sections: tuple[Section, ...]

    def count(self, direction: Direction) -> int:
        return sum(change.direction == direction for section in self.sections for change in section.changes)

    def summary(self) -> Summary:
        """Each difference, section by section."""
        rows = tuple(
            (s.title, c.name, c.what, c.before, c.after, c.direction) for s in self.sections for c in s.changes
        )
        better, worse, changed = (self.count(direction) for direction in ("better", "worse", "changed"))
        counts = f"{better:,} better, {worse:,} worse, {changed:,} otherwise different"
        columns = ("section", "name", "what", "before", "after", "direction")
        return Summary(f"{self.b} against {self.a} ({self.kind}): {counts}", columns, rows)

    def document(self) -> CompareDocument:
        return CompareDocument(
            kind=self.kind,
            a=self.a,
            b=self.b,
            better=self.count("better"),
            worse=self.count("worse"),
            sections=[SectionRecord(s.id, s.title, [c.document() for c in s.changes]) for s in self.sections],
        )
