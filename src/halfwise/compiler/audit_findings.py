"""What an audit found against a plan, as findings."""

from __future__ import annotations

from halfwise.compiler.audit import Audit, Violation
from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where

__all__ = ["audit_findings"]


def audit_findings(audit: Audit) -> tuple[Finding, ...]:
    """Violations first, then the nodes that cannot be told."""
    return (
        *(_finding("HW801", violation) for violation in audit.violations),
        *(_finding("HW802", violation) for violation in audit.unproven),
    )


def _finding(rule: str, violation: Violation) -> Finding:
    message = f"wanted {violation.wanted}, got {violation.got}; {violation.why}"
    return finding(rule, Where("node", violation.node), message, {"kernels": list(violation.kernels)})
