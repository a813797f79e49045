"""The document of the gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from halfwise.compiler.audit_document import Violation
from halfwise.core.document import LEFT_OUT, Count, Document, Left, Record, about
from halfwise.core.finding import Finding
from halfwise.core.metrics import Outputs
from halfwise.core.notes import Messages
from halfwise.core.tolerance import Bounds
from halfwise.verbs.fix.document import PromiseRecord

__all__ = ["Change", "CheckRecord", "GateDocument", "GatedModel", "Question", "Status"]

Change = Literal["none", "weights", "graph", "any"]
Question = Literal["fingerprint", "nodes", "tolerance", "violations", "findings"]
Status = Literal["pass", "fail", "skip"]


class GatedModel(Record, frozen=True):
    """The model, and what became of it since the plan."""

    path: str
    sha256: str
    nodes: Annotated[Count, about("As `fix` counts them.")]
    change: Change


class CheckRecord(Record, frozen=True):
    """One question and its answer."""

    id: Question
    status: Status
    message: str
    details: Sequence[str]
    messages: Messages = ()


class GateDocument(Document, frozen=True, tag="halfwise.gate/1"):
    """What `halfwise gate --json` prints: whether a committed plan still holds."""

    status: Literal["holds", "broken"]
    plan: str
    model: GatedModel
    checks: Sequence[CheckRecord]
    tolerance: Bounds | None
    error: Outputs
    violations: Sequence[Violation]
    findings: Annotated[Sequence[Finding], about("That the baseline does not have.")]
    notes: Sequence[str]
    messages: Messages = ()
    promise: Annotated[PromiseRecord | Left, about("Where the tolerance is kept on inputs that were given.")] = LEFT_OUT
