"""What an audit found against a plan, as findings."""

from __future__ import annotations

from halfwise.compiler.audit import UNPROVEN, Audit, Violation
from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.notes import Note, NoteKind

__all__ = ["audit_findings", "what_ran"]


def audit_findings(audit: Audit) -> tuple[Finding, ...]:
    """Violations first, then the nodes that cannot be told."""
    return (
        *(_finding("HW801", violation) for violation in audit.violations),
        *(_finding("HW802", violation) for violation in audit.unproven),
    )


def _finding(rule: str, violation: Violation) -> Finding:
    return finding(rule, Where("node", violation.node), what_ran(violation), {"kernels": list(violation.kernels)})


def what_ran(violation: Violation) -> Note:
    """What was wanted of a node, what it got, and why that is known or not."""
    why = list(violation.messages)
    if violation.got == UNPROVEN:
        return Note.of(NoteKind.NOT_SHOWN, wanted=violation.wanted, why=why)
    return Note.of(NoteKind.RAN_OTHERWISE, wanted=violation.wanted, got=violation.got, why=why)
