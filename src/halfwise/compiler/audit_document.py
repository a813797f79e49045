"""The document of an audit."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from halfwise.compiler.layers_cost import EngineCost
from halfwise.compiler.layers_evidence import Coverage
from halfwise.core.advisory import AdvisoryRecord
from halfwise.core.document import LEFT_OUT, Count, Document, Left, Record
from halfwise.core.notes import Messages

__all__ = ["AuditDocument", "CoverageRecord", "EngineRecord", "NodeRecord", "Violation"]


class EngineRecord(EngineCost, frozen=True):
    """The engine as a whole."""

    fused_attention: Sequence[str]
    kernels_with_casts: Sequence[str]
    reformat_layers: Sequence[str]


class CoverageRecord(Record, frozen=True, kw_only=True):
    """Compute nodes by how surely their precision is known."""

    exact: Count
    mixed: Count
    region_only: Count = field(name="region-only")
    folded: Count
    unknown: Count


class NodeRecord(Record, frozen=True):
    """The precision that one node ran in."""

    node: str
    op: str
    compute: bool
    precision: str
    coverage: Coverage
    kernels: Sequence[str]
    note: str
    messages: Messages = ()


class Violation(Record, frozen=True):
    """A node that was to be kept in a format and was not, or (got "unproven") cannot be shown to have been."""

    node: str
    wanted: str
    got: str
    kernels: Sequence[str]
    why: str
    messages: Messages = ()


class AuditDocument(Document, frozen=True, tag="halfwise.audit/1"):
    """What `halfwise audit --json` prints: the precision that each node ran in."""

    source: str
    engine: EngineRecord
    coverage: CoverageRecord
    nodes: Sequence[NodeRecord]
    violations: Sequence[Violation]
    unproven: Sequence[Violation]
    notes: Sequence[str]
    messages: Messages = ()
    target: str | Left | None = LEFT_OUT
    advisories: Sequence[AdvisoryRecord] | Left = LEFT_OUT
