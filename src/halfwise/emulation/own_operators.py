"""ONNX Runtime's own operators in an emulation: by the CPU's kernel, or in ONNX's operators."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.emulation.profiles.steps import Steps
from halfwise.model.contrib.decompose import decompose, has_steps, runs_on_cpu
from halfwise.model.contrib.schemas import DOMAIN
from halfwise.model.contrib.steps_grouped import slides_cache
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Names

__all__ = ["in_full", "own_steps"]

_AS_THEY_ARE = frozenset({"GatherBlockQuantized", "MatMulNBits"})  # nothing is stored on the way; the weights are large


def in_full(proto: onnx.NodeProto) -> None:
    """Take away the leave to multiply in INT8, which the CPU's kernel of packed weights takes and no GPU's."""
    if proto.op_type == "MatMulNBits" and proto.domain == DOMAIN:
        kept = [attribute for attribute in proto.attribute if attribute.name != "accuracy_level"]
        del proto.attribute[:]
        proto.attribute.extend(kept)


def own_steps(
    proto: onnx.NodeProto, node: ir.Node, assignment: Assignment, names: Names, *, stores: bool
) -> tuple[list[onnx.NodeProto], dict[int, str]] | None:
    """The nodes and their results by slot; None where the CPU's kernel computes the node as it stands.

    `stores`: what a step gives is rounded where the node is narrow.
    """
    if not has_steps(node):
        return None
    formats = {assignment.stored(value) for value in node.outputs if value.name} - {None, Format.FP32}
    fmt = next((fmt for fmt in formats if fmt is not None), Format.FP32)
    by_kernel = runs_on_cpu(node) and not slides_cache(node)
    if by_kernel and (fmt is Format.FP32 or not stores or node.op_type in _AS_THEY_ARE):
        return None
    base = next((name for name in proto.output if name), "")
    steps = Steps(node, fmt, names, assignment.sites.model.opset(""), base, stores=stores)
    results = decompose(steps, list(proto.input))
    if results is None:
        return None
    return steps.nodes, {slot: results[slot] for slot, value in enumerate(node.outputs) if value.name}
