"""A note: one message to the user as data. `core.english` says it in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from halfwise.core.finding import Severity

__all__ = ["Note", "NoteKind"]


class NoteKind(Enum):
    """Every message that a note can carry."""

    # Inputs
    NO_INPUTS = "no-inputs"
    SAMPLES_THINNED = "samples-thinned"
    SAMPLES_REPEATED = "samples-repeated"
    SAMPLES_NOT_FINITE = "samples-not-finite"
    SYNTHETIC = "synthetic"
    ONE_SAMPLE = "one-sample"
    ONE_CONSTANT_SAMPLE = "one-constant-sample"


_WARNINGS = frozenset(
    {
        NoteKind.SAMPLES_NOT_FINITE,
        NoteKind.SYNTHETIC,
        NoteKind.ONE_SAMPLE,
        NoteKind.ONE_CONSTANT_SAMPLE,
    }
)


@dataclass(frozen=True)
class Note:
    """`subject` names the node, tensor, input or file that the note is about; `values` fill its sentence."""

    kind: NoteKind
    severity: Severity = "info"
    subject: str = ""
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, kind: NoteKind, subject: str | None = "", **values: Any) -> Note:
        """A note with the severity of its kind."""
        return cls(kind, "warning" if kind in _WARNINGS else "info", subject or "", values)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "severity": self.severity,
            "subject": self.subject,
            "values": {name: _plain(value) for name, value in self.values.items()},
        }


def _plain(value: Any) -> Any:
    """A value as JSON has it; a number that is not finite is a string, as in every document."""
    if isinstance(value, Note):
        return value.to_json()
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
