"""Two plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfwise.verbs.compare.parts import kept_nodes, repairs, settings
from halfwise.verbs.compare.result import Section

__all__ = ["sections"]

Document = Mapping[str, Any]


def sections(a: Document, b: Document) -> list[Section]:
    asked = settings(a.get("model", {}), b.get("model", {}), ("path", "sha256", "nodes"))
    asked += settings(a, b, ("target", "profile", "tolerance", "io_types", "io_formats", "inputs"))
    return [
        kept_nodes(a["fp32_nodes"], b["fp32_nodes"]),
        repairs(a.get("repairs", ()), b.get("repairs", ())),
        Section.of("asked", "What was asked", asked),
    ]
