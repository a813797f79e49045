"""What a scan returns, and its document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halfwise.finding import Finding
from halfwise.formats import Counts
from halfwise.patterns import Pattern
from halfwise.scan.weights import InitializerCounts, merged

__all__ = ["ModelFacts", "ScanResult"]


@dataclass(frozen=True)
class ModelFacts:
    """What a reader wants to know of the model itself; not part of the document."""

    path: str | None
    nodes: int
    opset: int
    weight_bytes: int


@dataclass(frozen=True)
class ScanResult:
    """Every FP32 initializer once, and the findings, most severe first. Patterns are for other rooms to work on."""

    initializers: tuple[InitializerCounts, ...]
    findings: tuple[Finding, ...]
    patterns: tuple[Pattern, ...]
    facts: ModelFacts

    @property
    def totals(self) -> Counts:
        return merged(entry.counts for entry in self.initializers)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "halfwise.scan/1",
            "weights": {
                "totals": {"initializers": len(self.initializers), **_counts_json(self.totals)},
                "initializers": [{"name": e.name, **_counts_json(e.counts)} for e in self.initializers],
            },
            "findings": [finding.to_json() for finding in self.findings],
        }


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
