"""Two traces: ranges that grew, values that leave FP16, errors of single nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.verbs.compare.parts import as_number, less, measured, widely
from halfwise.verbs.compare.result import Change, Section

__all__ = ["sections"]

Document = Mapping[str, Any]

_SHARES = ("over", "below_normal", "below_subnormal", "nonfinite")
_LEAST = 0.1  # what other inputs alone may bring


def sections(a: Document, b: Document) -> list[Section]:
    ranges: list[Change] = []
    shares: list[Change] = []
    old, new = ({str(each["name"]): each for each in side["tensors"]} for side in (a, b))
    beyond = (Note.of(NoteKind.NOW_BEYOND, format="FP16"),)
    for name in (each for each in new if each in old):
        before, after = (_reach(side[name]) for side in (old, new))
        if widely(before, after, _LEAST):
            over = before <= Format.FP16.max < after
            ranges.append(Change(name, "largest magnitude", before, after, less(before, after), beyond if over else ()))
        shares += measured(name, old[name], new[name], _SHARES, least=_LEAST)
    errors: list[Change] = []
    was, now = ({str(each["name"]): each for each in side["nodes"]} for side in (a, b))
    for name in (each for each in now if each in was):
        errors += measured(name, was[name], now[name], ("local_error",), least=_LEAST)
    return [
        Section.of("shares", "Values that FP16 holds badly, by tensor", shares),
        Section.of("ranges", "Ranges", ranges),
        Section.of("errors", "Error of each node, alone in FP16", errors),
        Section.of("graph", "Tensors and nodes", [*_members("tensor", old, new), *_members("node", was, now)]),
    ]


def _reach(tensor: Document) -> float:
    return max(abs(as_number(tensor["min"])), abs(as_number(tensor["max"])))


def _members(what: str, a: Document, b: Document) -> list[Change]:
    found = [Change(name, what, None, "there", "changed") for name in b if name not in a]
    return found + [Change(name, what, "there", None, "changed") for name in a if name not in b]
