"""What was decided about a model, and a decision that was changed for a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Sites

__all__ = ["Adjusted", "Adjustment", "Decision"]

T = TypeVar("T", bound="Adjusted")


@dataclass(frozen=True)
class Decision:
    """The formats of the nodes that do not narrow, and how they make an assignment."""

    sites: Sites
    formats: Mapping[ir.Node, Format]
    io_types: Format

    @property
    def assignment(self) -> Assignment:
        return Assignment.excepting(self.sites, self.formats, self.io_types)

    @property
    def wanted(self) -> dict[str, Format]:
        return {node.name or "": fmt for node, fmt in self.formats.items()}

    def with_fp32(self, nodes: Iterable[ir.Node]) -> Decision:
        return self.with_formats({**self.formats, **dict.fromkeys(nodes, Format.FP32)})

    def with_formats(self, formats: Mapping[ir.Node, Format]) -> Decision:
        return replace(self, formats=formats)


@dataclass(frozen=True)
class Adjustment:
    """A decision as it was changed for the sake of what runs it: the nodes that it added, and notes on it."""

    decision: Decision
    added: tuple[PlannedNode, ...] = ()
    notes: tuple[Note, ...] = ()

    def to(self, decision: Decision, added: Iterable[PlannedNode], *notes: Note) -> Adjustment:
        """Changed once more."""
        return Adjustment(decision, (*self.added, *added), (*self.notes, *notes))

    def noting(self, *notes: Note) -> Adjustment:
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True, eq=False)
class Adjusted:
    """What was learned of a decision, with `adjustment`: the decision as the target and the compiler have it."""

    adjustment: Adjustment

    @property
    def decision(self) -> Decision:
        return self.adjustment.decision

    def noting(self: T, *notes: Note) -> T:
        return replace(self, adjustment=self.adjustment.noting(*notes))
