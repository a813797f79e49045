"""JSON Schemas of every document that halfwise prints or writes, from the types of the documents."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from halfwise.core.errors import InputError

__all__ = ["NAMES", "schema"]

_HOMES = {
    "advise": "halfwise.deploy.advisories.document:AdviseDocument",
    "audit": "halfwise.compiler.audit_document:AuditDocument",
    "bisect": "halfwise.verbs.bisect.document:BisectDocument",
    "compare": "halfwise.verbs.compare.document:CompareDocument",
    "demo": "halfwise.verbs.demo:DemoDocument",
    "fix": "halfwise.verbs.fix.document:FixDocument",
    "gate": "halfwise.verbs.gate_document:GateDocument",
    "log": "halfwise.compiler.buildlog.report:LogDocument",
    "plan": "halfwise.precision.plan_document:PlanDocument",
    "scan": "halfwise.verbs.scan.document:ScanDocument",
    "stages": "halfwise.verbs.stages.document:StagesDocument",
    "trace": "halfwise.verbs.trace:TraceDocument",
    "verify": "halfwise.verbs.verify:VerifyDocument",
}
NAMES = tuple(_HOMES)


def schema(name: str) -> dict[str, Any]:
    """The schema of `halfwise.<name>/1`, by JSON Schema's draft of 2020-12."""
    if name not in NAMES:
        raise InputError(f"there is no schema {name!r}; there are {', '.join(NAMES)}")
    from halfwise.core.json_schema import schema_of

    module, _, kind = _HOMES[name].partition(":")
    return schema_of(getattr(import_module(module), kind))
