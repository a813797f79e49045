"""What documents of several kinds share, compared: numbers, sets of entries, nodes with reasons, findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from halfwise.core.notes import Note, NoteKind
from halfwise.verbs.compare.result import Change, Direction, Section

__all__ = ["as_number", "findings", "kept_nodes", "less", "measured", "repairs", "settings", "violations", "widely"]

Document = Mapping[str, Any]

_SHOWN = 300
_SAME = 0.05  # two measurements nearer than this say the same


def as_number(value: Any) -> float:
    """A number of a document, where infinities are words."""
    return value if isinstance(value, int) else float(value)


def widely(before: float, after: float, least: float = _SAME) -> bool:
    """Whether two measurements differ by more than such a share; NaN is like NaN only."""
    if before == after or (math.isnan(before) and math.isnan(after)):
        return False
    if not (math.isfinite(before) and math.isfinite(after)):
        return True
    return abs(before - after) > least * max(abs(before), abs(after))


def less(before: float, after: float) -> Direction:
    """For what is better when it is less; NaN is worst."""
    return "worse" if math.isnan(after) or after > before else "better"


def measured(
    name: str,
    before: Document,
    after: Document,
    keys: Iterable[str],
    *,
    neutral: Iterable[str] = (),
    least: float = _SAME,
) -> list[Change]:
    """Numbers of two entries by key, of which less is better; of the neutral ones neither is."""
    found = []
    for key in keys:
        if key not in before or key not in after:
            continue
        a, b = as_number(before[key]), as_number(after[key])
        if widely(a, b, least):
            found.append(Change(name, key, a, b, "changed" if key in neutral else less(a, b)))
    return found


def settings(before: Document, after: Document, keys: Iterable[str]) -> list[Change]:
    """What was asked for, where it differs."""
    return [
        Change("", key, _said(before.get(key))[:_SHOWN], _said(after.get(key))[:_SHOWN], "changed")
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_said(each)}" for key, each in value.items())
    return "" if value is None else str(value)


def kept_nodes(before: Sequence[Any], after: Sequence[Any]) -> Section:
    """Nodes out of FP16: those that joined, those that need it no more, and other formats."""
    a, b = ({_name(entry): entry for entry in nodes} for nodes in (before, after))
    found = [Change(n, "", None, _format(e), "worse", _why(e)) for n, e in b.items() if n not in a]
    found += [Change(n, "", _format(e), None, "better", _why(e)) for n, e in a.items() if n not in b]
    found += [
        Change(name, "", _format(a[name]), _format(entry), "changed", _why(entry))
        for name, entry in b.items()
        if name in a and _format(a[name]) != _format(entry)
    ]
    return Section.of("nodes", "Nodes kept out of FP16", found)


def _name(entry: Any) -> str:
    return entry if isinstance(entry, str) else str(entry["name"])


def _format(entry: Any) -> str:
    return "fp32" if isinstance(entry, str) else str(entry.get("format", "fp32"))


def _why(entry: Any) -> tuple[Note, ...]:
    if isinstance(entry, str) or not (why := entry.get("why")):
        return ()
    reason = entry.get("reason", "")
    if entry.get("op"):
        return (Note.of(NoteKind.OPERATOR_KEPT, entry["op"], why=why, reason=reason),)
    return (Note.of(NoteKind.NODE_KEPT, why=why, reason=reason),)


def _stated(text: Any) -> tuple[Note, ...]:
    """What a document says in its own words."""
    return (Note.of(NoteKind.AS_STATED, text=str(text)),) if text else ()


def repairs(before: Sequence[Document], after: Sequence[Document]) -> Section:
    def place(entry: Document) -> tuple[str, ...]:
        return (str(entry["rule"]), *map(str, entry["nodes"]))

    def told(entry: Document) -> str:
        nodes = [str(node) for node in entry["nodes"]]
        return ", ".join(nodes) if len(nodes) < 3 else f"{nodes[0]} to {nodes[-1]} ({len(nodes)} nodes)"

    a, b = ({place(entry): entry for entry in entries} for entries in (before, after))
    made = [(e, None, "made") for key, e in b.items() if key not in a]
    gone = [(e, "made", None) for key, e in a.items() if key not in b]
    found = [
        Change(told(e), str(e["rule"]), was, now, "changed", _stated(e.get("algebra")))
        for e, was, now in [*made, *gone]
    ]
    return Section.of("repairs", "Repairs", found)


def findings(before: Sequence[Document], after: Sequence[Document]) -> Section:
    """Findings by rule and place: new ones, gone ones, and other severities."""
    order = ("info", "warning", "error")

    def place(entry: Document) -> tuple[str, str, str]:
        return str(entry["rule"]), str(entry["where"]["kind"]), str(entry["where"]["name"])

    a, b = ({place(entry): entry for entry in entries} for entries in (before, after))
    found = []
    for key, entry in (b | a).items():
        was, now = (str(side[key]["severity"]) if key in side else None for side in (a, b))
        if was == now:
            continue
        ranks = [order.index(severity) if severity in order else -1 for severity in (was, now)]
        direction: Direction = "worse" if ranks[1] > ranks[0] else "better"
        if max(ranks) == 0:
            direction = "changed"  # mere information comes and goes
        found.append(Change(key[2], key[0], was, now, direction, _stated(b.get(key, entry)["message"])))
    return Section.of("findings", "Findings", found)


def violations(
    name: str, title: str, before: Sequence[Document], after: Sequence[Document], got: Callable[[Document], str]
) -> Section:
    """Nodes at which a plan was not kept, or cannot be shown to have been."""
    a, b = ({str(entry["node"]): entry for entry in entries} for entries in (before, after))
    found = [Change(n, "", None, got(e), "worse", _stated(e["why"])) for n, e in b.items() if n not in a]
    found += [Change(n, "", got(e), None, "better", _stated(e["why"])) for n, e in a.items() if n not in b]
    return Section.of(name, title, found)
