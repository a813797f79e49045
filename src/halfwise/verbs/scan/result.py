"""What a scan returns, and its document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halfwise.core.counting import Counts
from halfwise.core.document import LEFT_OUT, Documented
from halfwise.core.finding import Finding
from halfwise.core.notes import Note
from halfwise.core.summary import Summary
from halfwise.core.wording import counted
from halfwise.model.patterns import Pattern
from halfwise.verbs.scan.document import InitializerRecord, ScanDocument, TotalsRecord, WeightsRecord
from halfwise.verbs.scan.rounding import Rounding
from halfwise.verbs.scan.weights import InitializerCounts, merged

__all__ = ["CheckpointFacts", "ModelFacts", "ScanResult"]

_COUNTED = ("count", "subnormal", "underflow", "overflow", "nonfinite", "max_abs", "min_abs")


@dataclass(frozen=True)
class ModelFacts:
    """What a reader wants to know of the model itself; not part of the document."""

    path: str | None
    nodes: int
    opset: int
    weight_bytes: int
    next: tuple[str, ...]  # the words of the command to run next; none of a model in memory, or where none helps


@dataclass(frozen=True)
class CheckpointFacts:
    """What a reader wants to know of a checkpoint; not part of the document."""

    path: str
    files: int
    other: int  # tensors that hold no floating-point numbers
    shared: int  # names of tensors that another name has, too
    notes: tuple[Note, ...]


@dataclass(frozen=True, repr=False)
class ScanResult(Documented):
    """Every float weight once, and the findings, most severe first. Patterns are for other rooms to work on."""

    initializers: tuple[InitializerCounts, ...]
    findings: tuple[Finding, ...]
    patterns: tuple[Pattern, ...]
    facts: ModelFacts | CheckpointFacts
    training: tuple[
        Note, ...
    ] = ()  # what to change in training, where that is still possible; not part of the document

    @property
    def totals(self) -> Counts:
        return merged(entry.counts for entry in self.initializers)

    @property
    def total_rounding(self) -> Rounding | None:
        """What rounding does to all weights together; None where not every one was measured."""
        parts = [entry.rounding for entry in self.initializers if entry.rounding is not None]
        return Rounding.together(parts) if parts and len(parts) == len(self.initializers) else None

    def summary(self) -> Summary:
        """Each finding, the most severe first."""
        rows = tuple((f.severity, f.rule, f.where.name, f.message, f.remedy) for f in self.findings)
        counts = ", ".join(counted(sum(f.severity == s for f in self.findings), s) for s in ("error", "warning"))
        weights = counted(len(self.initializers), "float weight")
        headline = f"{self.facts.path or 'the model'}: {counted(len(rows), 'finding')} ({counts}); {weights}"
        return Summary(headline, ("severity", "rule", "where", "message", "remedy"), rows)

    def document(self) -> ScanDocument:
        together = self.total_rounding
        totals = TotalsRecord(
            initializers=len(self.initializers),
            **_counted(self.totals),
            rounding=LEFT_OUT if together is None else together.document(),
        )
        return ScanDocument(WeightsRecord(totals, [_entry(each) for each in self.initializers]), self.findings)


def _counted(counts: Counts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in _COUNTED}


def _entry(entry: InitializerCounts) -> InitializerRecord:
    return InitializerRecord(
        name=entry.name,
        **_counted(entry.counts),
        dtype=LEFT_OUT if entry.dtype == "fp32" else entry.dtype,
        rounding=LEFT_OUT if entry.rounding is None else entry.rounding.document(),
    )
