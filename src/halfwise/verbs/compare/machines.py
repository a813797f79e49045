"""Two machine files: what ran, and the rules that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfwise.verbs.compare.parts import settings
from halfwise.verbs.compare.result import Change, Section

__all__ = ["sections"]

Document = Mapping[str, Any]


def sections(a: Document, b: Document) -> list[Section]:
    old, new = ({str(each["name"]): each for each in side["forms"]} for side in (a, b))
    rounding, running = [], []
    for name in dict.fromkeys((*old, *new)):
        was, now = old.get(name), new.get(name)
        if _ran(was) and _ran(now):
            if _told(was) != _told(now):
                rounding.append(Change(name, "", _told(was), _told(now), "changed"))
        elif _status(was) != _status(now):
            running.append(Change(name, "", _status(was), _status(now), "changed"))
    asked = settings(a["ran"], b["ran"], tuple(a["ran"])) + settings(a, b, ("halfwise", "made"))
    return [
        Section.of("rounding", "Probes that round differently", rounding),
        Section.of("running", "Probes that only one machine runs", running),
        Section.of("asked", "What ran", asked),
    ]


def _ran(form: Document | None) -> bool:
    return bool(form and form.get("hypotheses"))


def _told(form: Document | None) -> str:
    if form is None:
        return ""
    several = form["status"] in ("loose", "several")
    names = form["hypotheses"] if several else form["hypotheses"][:1]
    return " or ".join(names) + (" (loose)" if form["status"] == "loose" else "")


def _status(form: Document | None) -> str | None:
    return None if form is None else str(form["status"])
