"""A finding: one thing found, where it was found, the numbers behind it, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from halfwise.core.document import LEFT_OUT, Left, Record, about
from halfwise.core.notes import Note, Severity

__all__ = ["SEVERITIES", "Finding", "PlaceKind", "RuleId", "Severity", "Where", "most_severe_first"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")  # the most severe first

PlaceKind = Literal[
    "advisory", "build", "initializer", "input", "layer", "line",
    "model", "node", "option", "output", "tactic", "tensor",
]  # fmt: skip

RuleId = Annotated[str, Meta(pattern="^HW[0-9]+$", description="A stable id.")]


class Where(Record, frozen=True):
    """The place of a finding."""

    kind: PlaceKind
    name: str


class Finding(Record, frozen=True):
    """One thing found."""

    rule: RuleId
    severity: Severity
    where: Where
    numbers: Annotated[Mapping[str, Any], about("The evidence by name.")]
    message: str
    remedy: str
    note: Annotated[Note | Left, about("The message as data.")] = LEFT_OUT


def most_severe_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those of one severity by their rules."""
    return tuple(sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), each.rule)))
