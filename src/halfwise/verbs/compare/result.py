"""What a comparison found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Change", "Comparison", "Direction", "Section", "Value"]

Direction = Literal["better", "worse", "changed"]
Value = float | int | str | None

_ORDER = {"worse": 0, "changed": 1, "better": 2}


@dataclass(frozen=True)
class Change:
    """One difference: of what (`name`: an output, a node, a tensor; `what`: which property), and its two values."""

    name: str
    what: str
    before: Value
    after: Value
    direction: Direction
    note: str = ""

    @property
    def size(self) -> float:
        """How far the two are apart, for what can be measured: the logarithm of their ratio."""
        if not isinstance(self.before, (int, float)) or not isinstance(self.after, (int, float)):
            return math.inf
        small, large = sorted((abs(self.before), abs(self.after)))
        return math.log(large / small) if small > 0 and math.isfinite(large) else math.inf

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "what": self.what,
            "before": _json_value(self.before),
            "after": _json_value(self.after),
            "direction": self.direction,
            "note": self.note,
        }


@dataclass(frozen=True)
class Section:
    """Changes of one kind, what got worse first."""

    id: str
    title: str
    changes: tuple[Change, ...]

    @classmethod
    def of(cls, name: str, title: str, changes: list[Change]) -> Section:
        return cls(name, title, tuple(sorted(changes, key=lambda c: (_ORDER[c.direction], -c.size))))


@dataclass(frozen=True)
class Comparison:
    """Two documents of one kind; `a` is before, `b` after. Sections without a change are left out."""

    kind: str
    a: str
    b: str
    sections: tuple[Section, ...]

    def count(self, direction: Direction) -> int:
        return sum(change.direction == direction for section in self.sections for change in section.changes)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "halfwise.compare/1",
            "kind": self.kind,
            "a": self.a,
            "b": self.b,
            "better": self.count("better"),
            "worse": self.count("worse"),
            "sections": [
                {"id": s.id, "title": s.title, "changes": [change.to_json() for change in s.changes]}
                for s in self.sections
            ],
        }


def _json_value(value: Value) -> Value:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
