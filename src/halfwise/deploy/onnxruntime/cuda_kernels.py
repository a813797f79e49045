"""Keeps out of FP16 what ONNX Runtime's CUDA provider computes wrong in FP16 and right in FP32.

Seen with 1.31: Attention with a cache whose values have heads of another size than its keys is off by 70%.
"""

from __future__ import annotations

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.onnxruntime.adjustable import Adjustable
from halfwise.precision.decision import Adjustment
from halfwise.precision.plan import PlannedNode

__all__ = ["adjust_attentions"]

_PAST = 4, 5  # the slots of the keys and the values that are cached


def adjust_attentions(may: Adjustable, start: Adjustment) -> Adjustment:
    """All of them in FP32, where the user lets it."""
    formats = start.decision.formats
    added = []
    for node in start.decision.sites.model.nodes:
        if not _is_wrong(node) or may.is_wide(node, formats):
            continue
        wide = may.widened((node,), formats)
        if wide is not None:
            formats = wide
            because = (Note.of(NoteKind.KEEPS_CUDA_RIGHT, node.op_type),)
            added.append(PlannedNode(node.name or "", node.op_type, Format.FP32, Reason.COMPILER, because))
    return start.to(start.decision.with_formats(formats), added) if added else start


def _is_wrong(node: ir.Node) -> bool:
    if node.op_type != "Attention" or node.domain or len(node.inputs) <= max(_PAST):
        return False
    of_keys, of_values = (_head(node.inputs[slot]) for slot in _PAST)
    return isinstance(of_keys, int) and isinstance(of_values, int) and of_keys != of_values


def _head(value: ir.Value | None) -> int | ir.SymbolicDim | None:
    return None if value is None or value.shape is None else value.shape[-1]
