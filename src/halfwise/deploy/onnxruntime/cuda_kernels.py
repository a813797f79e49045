"""Keeps out of FP16 what ONNX Runtime's CUDA provider computes wrong in FP16 and right in FP32.

Seen with 1.31: Attention with a cache whose values have heads of another size than its keys is off by 70%. Gelu by
tanh without a bias goes through its elements in pairs: of an odd number the last is never written.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.onnxruntime.adjustable import Adjustable
from halfwise.emulation.profiles.fusions import candidates
from halfwise.model.contrib.schemas import DOMAIN
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment
from halfwise.precision.plan import PlannedNode

__all__ = ["adjust_kernels"]

_PAST = 4, 5  # the slots of the keys and the values that are cached


def adjust_kernels(may: Adjustable, start: Adjustment) -> Adjustment:
    """All of them in FP32, where the user lets it."""
    formats = start.decision.formats
    added = []
    for node in _wrong(start.decision.assignment):
        if may.is_wide(node, formats):
            continue
        wide = may.widened((node,), formats)
        if wide is not None:
            formats = wide
            because = (Note.of(NoteKind.KEEPS_CUDA_RIGHT, node.op_type),)
            added.append(PlannedNode(node.name or "", node.op_type, Format.FP32, Reason.COMPILER, because))
    return start.to(start.decision.with_formats(formats), added) if added else start


def _wrong(assignment: Assignment) -> Iterator[ir.Node]:
    for node in assignment.sites.model.nodes:
        if _is_wrong_attention(node) or (_is_tanh_gelu(node) and not _is_even(node.outputs[0])):
            yield node
    for fusion in candidates(assignment.sites, "ort"):
        if fusion.kind == "fast-gelu" and fusion.fires(assignment) and not _is_even(fusion.last.outputs[0]):
            yield next(node for node in fusion.nodes if node.op_type == "Tanh")  # its Casts keep the nodes apart


def _is_wrong_attention(node: ir.Node) -> bool:
    if node.op_type != "Attention" or node.domain or len(node.inputs) <= max(_PAST):
        return False
    of_keys, of_values = (_head(node.inputs[slot]) for slot in _PAST)
    return isinstance(of_keys, int) and isinstance(of_values, int) and of_keys != of_values


def _head(value: ir.Value | None) -> int | ir.SymbolicDim | None:
    return None if value is None or value.shape is None else value.shape[-1]


def _is_tanh_gelu(node: ir.Node) -> bool:
    if (node.domain, node.op_type) == (DOMAIN, "FastGelu"):
        return len(node.inputs) < 2 or node.inputs[1] is None
    return (node.domain, node.op_type) == ("", "Gelu") and node.attributes.get_string("approximate", "none") == "tanh"


def _is_even(value: ir.Value) -> bool:
    """Whether the number of elements is even whatever the sizes are that are not known."""
    return value.shape is not None and any(isinstance(size, int) and size % 2 == 0 for size in value.shape)
