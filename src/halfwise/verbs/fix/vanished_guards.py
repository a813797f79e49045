"""What is said of guards that stay in a format that has no number so small, as `scan` says it of a model (HW114)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx_ir as ir

from halfwise.core.notes import Note, NoteKind
from halfwise.model.patterns.guards import find_guards
from halfwise.model.patterns.view import View
from halfwise.precision.sites import Sites

__all__ = ["vanished_guards"]


def vanished_guards(sites: Sites, kept: Collection[ir.Node]) -> Iterator[Note]:
    """Of each epsilon that is 0 because not all nodes from it to what it guards are `kept` in FP32."""
    groups: dict[tuple[float, str], dict[str, None]] = {}
    for guard in find_guards(View(sites.model), sites.fmt.smallest_subnormal / 2):
        node = guard.nodes[0]
        if any(sites.of[each].free and each not in kept for each in guard.nodes):
            groups.setdefault((guard.epsilon, guard.guards), {})[node.name or ""] = None
    for (epsilon, guards), nodes in groups.items():
        yield Note.of(NoteKind.GUARD_VANISHES, epsilon=epsilon, count=len(nodes), guards=guards, nodes=list(nodes))
