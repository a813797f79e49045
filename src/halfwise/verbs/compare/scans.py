"""Two scans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfwise.verbs.compare.parts import findings, measured
from halfwise.verbs.compare.result import Change, Section

__all__ = ["sections"]

Document = Mapping[str, Any]

_BAD = ("subnormal", "underflow", "overflow", "nonfinite")
_SIZE = ("initializers", "count", "max_abs")


def sections(a: Document, b: Document) -> list[Section]:
    totals = a["weights"]["totals"], b["weights"]["totals"]
    counts = measured("", *totals, (*_BAD, *_SIZE), neutral=_SIZE, least=0.0)
    old, new = ({str(each["name"]): each for each in side["weights"]["initializers"]} for side in (a, b))
    weights: list[Change] = []
    for name in dict.fromkeys((*old, *new)):
        if name in old and name in new:
            weights += measured(name, old[name], new[name], _BAD, least=0.0)
    return [
        findings(a["findings"], b["findings"]),
        Section.of("totals", "All weights", counts),
        Section.of("weights", "Values that FP16 holds badly, by weight", weights),
    ]
