"""What is said of guards that stay in a format that has no number so small, as `scan` says it of a model (HW114)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx_ir as ir

from halfwise.core.notes import Note, NoteKind
from halfwise.model.ops import CONTROL_FLOW, RANDOM
from halfwise.model.patterns.guards import find_guards
from halfwise.model.patterns.view import View
from halfwise.precision.sites import Sites

__all__ = ["vanished_guards"]

_UNSTEADY = CONTROL_FLOW.union(RANDOM)  # no matter of what is read alone


def vanished_guards(sites: Sites, kept: Collection[ir.Node]) -> Iterator[Note]:
    """Of each epsilon that is 0 because not all nodes that hold it so small are `kept` in FP32. What is computed of
    weights alone was seen: no other input needs a guard there."""
    groups: dict[tuple[float, str], dict[str, None]] = {}
    of_weights = _of_weights(sites)
    lost = sites.fmt.smallest_subnormal / 2
    for guard in find_guards(View(sites.model), lost):
        node = guard.nodes[0]
        if node not in of_weights and any(sites.of[each].free and each not in kept for each in guard.lost_in(lost)):
            groups.setdefault((guard.epsilon, guard.guards), {})[node.name or ""] = None
    for (epsilon, guards), nodes in groups.items():
        yield Note.of(NoteKind.GUARD_VANISHES, epsilon=epsilon, count=len(nodes), guards=guards, nodes=list(nodes))


def _of_weights(sites: Sites) -> set[ir.Node]:
    """The nodes that compute the same for every input."""
    found = set[ir.Node]()
    for node in sites.model.nodes:
        read = [value for value in node.inputs if value is not None]
        same = all(value.producer() in found or _is_weight(value) for value in read)
        if read and same and node.op_type not in _UNSTEADY:
            found.add(node)
    return found


def _is_weight(value: ir.Value) -> bool:
    return value.is_initializer() and not value.is_graph_input()
