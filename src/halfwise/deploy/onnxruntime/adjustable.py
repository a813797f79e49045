"""What may be changed of a decision for the sake of what runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["Adjustable", "Formats"]

Formats = Mapping[ir.Node, Format]


@dataclass(frozen=True)
class Adjustable:
    """What formats are decided about, which nodes the user stated, and whether a decision holds."""

    sites: Sites
    io: Format
    stated: frozenset[str]
    holds: Callable[[Assignment], bool]

    def assignment(self, formats: Formats) -> Assignment:
        return Assignment.excepting(self.sites, formats, self.io)

    def is_wide(self, node: ir.Node, formats: Formats) -> bool:
        return formats.get(node) is Format.FP32 or not self.sites.of[node].free

    def widened(self, nodes: Iterable[ir.Node], formats: Formats) -> Formats | None:
        """With these nodes in FP32; None where one may not be."""
        more = [node for node in nodes if not self.is_wide(node, formats)]
        if any(node in formats or not self._is_free(node) for node in more):
            return None
        return {**formats, **dict.fromkeys(more, Format.FP32)}

    def narrowed(self, nodes: Iterable[ir.Node], formats: Formats) -> Formats | None:
        """With these nodes in the narrow format; None where one may not be."""
        less = [node for node in nodes if self.is_wide(node, formats)]
        if not all(self._is_free(node) for node in less):
            return None
        return {node: fmt for node, fmt in formats.items() if node not in less}

    def _is_free(self, node: ir.Node) -> bool:
        return self.sites.of[node].free and node not in self.sites.forced and (node.name or "") not in self.stated
