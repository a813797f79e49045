"""Keeps recurrent nodes that take lengths of sequences in FP32, where the compiler takes types as they are stated.

TensorRT's parser clears what lies behind the end of a sequence with a zero, and writes that zero in FP32 whatever the
type of the node. Under strong typing it then refuses the node ("must have `thenInput` and `elseInput` of same types").
So does the parser of RTX 1.7, of GRU, LSTM and RNN alike.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.model.families import RECURRENT
from halfwise.precision.decision import Adjustment, Decision
from halfwise.precision.plan import PlannedNode

__all__ = ["keep_lengths"]

_LENGTHS = 4  # the slot


def keep_lengths(decision: Decision, stated: Collection[str]) -> Adjustment:
    """With these nodes in FP32, but for those that are `stated` by the user."""
    nodes = [
        site.node
        for site in decision.sites.free
        if _takes_lengths(site.node)
        and decision.formats.get(site.node) is not Format.FP32
        and site.node not in decision.sites.forced
        and site.name not in stated
    ]
    added = [
        PlannedNode(
            n.name or "", n.op_type, Format.FP32, Reason.COMPILER, (Note.of(NoteKind.KEEPS_BUILDABLE, n.op_type),)
        )
        for n in nodes
    ]
    return Adjustment(decision).to(decision.with_fp32(nodes), added)


def _takes_lengths(node: ir.Node) -> bool:
    return (
        node.op_type in RECURRENT
        and not node.domain
        and len(node.inputs) > _LENGTHS
        and node.inputs[_LENGTHS] is not None
    )
