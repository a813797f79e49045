"""Two audits: the engine's cost, the precision of each node, the kernels, and what was not kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halfwise.core.notes import Note, NoteKind
from halfwise.verbs.compare.parts import measured, violations
from halfwise.verbs.compare.result import Change, Section

__all__ = ["broken", "sections"]

Document = Mapping[str, Any]

_COST = ("kernels", "bytes_moved", "casts", "reformats")


def sections(a: Document, b: Document) -> list[Section]:
    old, new = ({str(each["node"]): each for each in side["nodes"]} for side in (a, b))
    precision = [
        Change(name, "", _ran(old.get(name)), _ran(new.get(name)), "changed", _ran_by(_kernels(new.get(name))[:3]))
        for name in dict.fromkeys((*old, *new))
        if _ran(old.get(name)) != _ran(new.get(name))
    ]
    was, now = (dict.fromkeys(k for each in side.values() for k in _kernels(each)) for side in (old, new))
    kernels = [Change(name, "", None, "there", "changed") for name in now if name not in was]
    kernels += [Change(name, "", "there", None, "changed") for name in was if name not in now]
    unproven = violations(
        "unproven", "Nodes that cannot be verified", a.get("unproven", ()), b.get("unproven", ()), _got
    )
    return [
        broken(a["violations"], b["violations"]),
        unproven,
        Section.of("cost", "The engine's cost", measured("", a["engine"], b["engine"], _COST, least=0.0)),
        Section.of("precision", "Precision by node", precision),
        Section.of("kernels", "Kernels", kernels),
    ]


def broken(a: Sequence[Document], b: Sequence[Document]) -> Section:
    """Where a plan was not kept."""
    return violations("violations", "Nodes at which the plan is not kept", a, b, _got)


def _got(entry: Document) -> str:
    return f"wanted {entry['wanted']}, got {entry['got']}"


def _ran(entry: Document | None) -> str | None:
    return None if entry is None else f"{entry['precision']} ({entry['coverage']})"


def _ran_by(kernels: Sequence[str]) -> tuple[Note, ...]:
    return (Note.of(NoteKind.KERNELS_RAN, kernels=kernels),) if kernels else ()


def _kernels(entry: Document | None) -> list[str]:
    return [] if entry is None else [str(kernel) for kernel in entry["kernels"]]
