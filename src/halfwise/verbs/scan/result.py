"""What a scan returns, and its document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halfwise.core.counting import Counts
from halfwise.core.finding import Finding, Severity
from halfwise.model.patterns import Pattern
from halfwise.verbs.scan.rounding import Rounding
from halfwise.verbs.scan.weights import InitializerCounts, merged

__all__ = ["CheckpointFacts", "ModelFacts", "ScanResult", "most_severe_first"]

_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class ModelFacts:
    """What a reader wants to know of the model itself; not part of the document."""

    path: str | None
    nodes: int
    opset: int
    weight_bytes: int


@dataclass(frozen=True)
class CheckpointFacts:
    """What a reader wants to know of a checkpoint; not part of the document."""

    path: str
    files: int
    other: int  # tensors that hold no floating-point numbers
    shared: int  # names of tensors that another name has, too
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ScanResult:
    """Every float weight once, and the findings, most severe first. Patterns are for other rooms to work on."""

    initializers: tuple[InitializerCounts, ...]
    findings: tuple[Finding, ...]
    patterns: tuple[Pattern, ...]
    facts: ModelFacts | CheckpointFacts
    training: tuple[str, ...] = ()  # what to change in training, where that is still possible; not part of the document

    @property
    def totals(self) -> Counts:
        return merged(entry.counts for entry in self.initializers)

    @property
    def total_rounding(self) -> Rounding | None:
        """What rounding does to all weights together; None where not every one was measured."""
        parts = [entry.rounding for entry in self.initializers if entry.rounding is not None]
        return Rounding.together(parts) if parts and len(parts) == len(self.initializers) else None

    def to_json(self) -> dict[str, Any]:
        together = self.total_rounding
        rounding = {"rounding": together.to_json()} if together is not None else {}
        return {
            "schema": "halfwise.scan/1",
            "weights": {
                "totals": {"initializers": len(self.initializers), **_counts_json(self.totals), **rounding},
                "initializers": [_entry_json(entry) for entry in self.initializers],
            },
            "findings": [finding.to_json() for finding in self.findings],
        }


def most_severe_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: (_RANK[finding.severity], finding.rule)))


def _entry_json(entry: InitializerCounts) -> dict[str, Any]:
    document = {"name": entry.name, **_counts_json(entry.counts)}
    if entry.dtype != "fp32":
        document["dtype"] = entry.dtype
    if entry.rounding is not None:
        document["rounding"] = entry.rounding.to_json()
    return document


def _counts_json(counts: Counts) -> dict[str, Any]:
    return {
        "count": counts.count,
        "subnormal": counts.subnormal,
        "underflow": counts.underflow,
        "overflow": counts.overflow,
        "nonfinite": counts.nonfinite,
        "max_abs": counts.max_abs,
        "min_abs": counts.min_abs,
    }
