"""Compares two documents of one kind, side by side: what got better, what got worse, what is merely different."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfwise.compiler.audit_document import AuditDocument
from halfwise.core.document import Documented, Record, read
from halfwise.core.errors import InputError
from halfwise.core.files.absent import absent
from halfwise.core.files.identify import identify, not_wanted
from halfwise.core.files.kinds import FileKind
from halfwise.core.json_text import read_json
from halfwise.emulation.profiles.machine import MachineDocument
from halfwise.precision.plan_document import PlanDocument
from halfwise.verbs.compare import audits, fixes, machines, plans, scans, traces
from halfwise.verbs.compare.document import Kind
from halfwise.verbs.compare.result import Change, Comparison, Section
from halfwise.verbs.fix.document import FixDocument
from halfwise.verbs.scan.document import ScanDocument
from halfwise.verbs.trace import TraceDocument

__all__ = ["Change", "Comparison", "Section", "compare"]

Document = Mapping[str, Any]


@dataclass(frozen=True)
class _Comparing:
    """A kind of document: its type, and what is compared of two of them."""

    type: type[Record]
    sections: Callable[[Document, Document], list[Section]]


_KINDS: Mapping[Kind, _Comparing] = {
    "fix": _Comparing(FixDocument, fixes.sections),
    "scan": _Comparing(ScanDocument, scans.sections),
    "trace": _Comparing(TraceDocument, traces.sections),
    "audit": _Comparing(AuditDocument, audits.sections),
    "plan": _Comparing(PlanDocument, plans.sections),
    "machine": _Comparing(MachineDocument, machines.sections),
}


def compare(a: str | Path | Document | Documented, b: str | Path | Document | Documented) -> Comparison:
    """Each is a result, its document (of `--json`, or a plan) or the file that holds it. A is before, B is after."""
    before, first = _read(a, "A")
    after, second = _read(b, "B")
    kinds = _kind(before, first), _kind(after, second)
    if kinds[0] != kinds[1]:
        raise InputError(f"{first} is a {kinds[0]} and {second} is a {kinds[1]}: only two of one kind can be compared")
    for document, label in ((before, first), (after, second)):
        _check(document, kinds[0], label)
    found = _KINDS[kinds[0]].sections(before, after)
    return Comparison(kinds[0], first, second, tuple(section for section in found if section.changes))


def _read(source: str | Path | Document | Documented, label: str) -> tuple[Document, str]:
    if isinstance(source, Documented):
        return source.to_json(), label
    if isinstance(source, Mapping):
        return source, label
    try:
        document = read_json(Path(source))
    except FileNotFoundError:
        raise absent(Path(source)) from None
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from None
    except ValueError:
        told = f"{source} is not valid JSON; compare takes what --json printed, or a plan"
        if identify(Path(source)).kind is FileKind.ONNX:
            told = f"{source} is an ONNX model: `halfwise verify A B --inputs ...` compares what two models answer"
            raise InputError(told) from None
        raise InputError(not_wanted(Path(source), "a result of halfwise", told)) from None
    if not isinstance(document, dict):
        raise InputError(f"{source} is no document of halfwise; compare takes what --json printed, or a plan")
    return document, str(source)


def _check(document: Document, kind: Kind, label: str) -> None:
    """Refuse what is not as its schema says. Messages may be another version's, and are not compared."""
    stated = {key: value for key, value in document.items() if key != "messages"}
    read(stated, _KINDS[kind].type, f"{label} is not as `halfwise schema {kind}` says")


def _kind(document: Document, label: str) -> Kind:
    schema = str(document.get("schema", ""))
    kind = next((kind for kind in _KINDS if schema == f"halfwise.{kind}/1"), None)
    if kind is not None:
        return kind
    said = f"is a document of schema {schema!r}" if schema else "is no document of halfwise"
    raise InputError(f"{label} {said}; compare takes two of {', '.join(_KINDS)}")
