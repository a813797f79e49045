"""A finding: one thing found, where it was found, the numbers behind it, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Finding", "Severity", "Where"]

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Where:
    """The place of a finding: its kind ("initializer", "node", "tensor", "model", "layer", "line", ...) and name."""

    kind: str
    name: str


@dataclass(frozen=True)
class Finding:
    """One thing found. `rule` is a stable id such as "HW101"; `numbers` hold the evidence by name."""

    rule: str
    severity: Severity
    where: Where
    message: str
    remedy: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "severity": self.severity,
            "where": {"kind": self.where.kind, "name": self.where.name},
            "numbers": dict(self.numbers),
            "message": self.message,
            "remedy": self.remedy,
        }
