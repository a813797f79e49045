"""JSON Schemas of every document that halfwise prints or writes, from the types of the documents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from halfwise.core.errors import InputError

if TYPE_CHECKING:
    from halfwise.core.document import Document

__all__ = ["NAMES", "document_type", "schema"]

_HOMES = {
    "advise": "halfwise.deploy.advisories.document:AdviseDocument",
    "audit": "halfwise.compiler.audit_document:AuditDocument",
    "bisect": "halfwise.verbs.bisect.document:BisectDocument",
    "compare": "halfwise.verbs.compare.document:CompareDocument",
    "demo": "halfwise.verbs.demo:DemoDocument",
    "doctor": "halfwise.verbs.doctor.document:DoctorDocument",
    "fix": "halfwise.verbs.fix.document:FixDocument",
    "fleet": "halfwise.fleet.document:FleetDocument",
    "fleet-history": "halfwise.fleet.document:HistoryDocument",
    "gate": "halfwise.verbs.gate_document:GateDocument",
    "log": "halfwise.compiler.buildlog.report:LogDocument",
    "machine": "halfwise.emulation.profiles.machine:MachineDocument",
    "plan": "halfwise.precision.plan_document:PlanDocument",
    "profiles": "halfwise.verbs.profiles:ProfilesDocument",
    "scan": "halfwise.verbs.scan.document:ScanDocument",
    "stages": "halfwise.verbs.stages.document:StagesDocument",
    "trace": "halfwise.verbs.trace:TraceDocument",
    "verify": "halfwise.verbs.verify:VerifyDocument",
}
NAMES = tuple(_HOMES)


def document_type(name: str) -> type[Document]:
    """The type of `halfwise.<name>/1`."""
    if name not in NAMES:
        raise InputError(f"there is no schema {name!r}; there are {', '.join(NAMES)}")
    module, _, kind = _HOMES[name].partition(":")
    found: type[Document] = getattr(import_module(module), kind)
    return found


def schema(name: str) -> dict[str, Any]:
    """The schema of `halfwise.<name>/1`, by JSON Schema's draft of 2020-12."""
    from halfwise.core.json_schema import schema_of

    return schema_of(document_type(name))
