"""In which format a choice reads the tensors that it compares."""

from __future__ import annotations

from collections.abc import Sequence

from halfwise.core.formats import Format
from halfwise.core.output_kinds import OutputKind
from halfwise.model.families import COMPARISONS
from halfwise.precision.assignment import Assignment

__all__ = ["read_by_choices"]

_CHOOSE = COMPARISONS | {"ArgMax"}


def read_by_choices(assignment: Assignment, kinds: Sequence[OutputKind]) -> dict[str, Format]:
    """By the tensor's name, where a choice reads it narrower than it is held: FP32 logits that an ArgMax rounds."""
    names = {name for kind in kinds for name in kind.decided_by}
    read = {
        value.name or "": assignment.read(node, slot)
        for value in (assignment.sites.model.judged_values if names else ())
        if value.name in names
        for node, slot in value.uses()
        if node.op_type in _CHOOSE and not node.domain
    }
    return {name: fmt for name, fmt in read.items() if fmt is not None and fmt is not Format.FP32}
