"""What it costs to keep a node in FP32: the node itself, and more where its arithmetic weighs more."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx_ir as ir

from halfwise.core.float_sum import float_sum
from halfwise.model.families import RECURRENT
from halfwise.precision.sites import Site, Sites

__all__ = ["flops", "node_costs"]

MOVE_COST = 0.25  # a node that only moves data
WEIGHT_OF_WORK = 0.25  # per doubling of a node's share of the arithmetic


def node_costs(sites: Sites, sizes: Mapping[ir.Value, int]) -> dict[ir.Node, float]:
    """One per compute node, and a little more for each doubling of its work over the average.

    A short FP32 stretch of pointwise steps stays one kernel and is nearly free; an FP32 matrix product is not.
    """
    work = {site.node: flops(site, sizes) for site in sites.all}
    average = float_sum(work.values()) / max(len(work), 1)
    return {
        site.node: MOVE_COST
        if site.moves
        else 1.0 + WEIGHT_OF_WORK * math.log2(1.0 + work[site.node] / average if average else 1.0)
        for site in sites.all
    }


def flops(site: Site, sizes: Mapping[ir.Value, int]) -> float:
    """Arithmetic of one node from the sizes seen in a run; moving data counts nothing."""
    if site.moves:
        return 0.0
    node = site.node
    out = float(sum(sizes.get(value, 0) for value in node.outputs))
    if node.op_type in ("MatMul", "Gemm") and node.inputs[0] is not None:
        return 2.0 * out * _inner(node, sizes)
    if node.op_type in ("Conv", "ConvTranspose") and node.inputs[1] is not None:
        weight, shape = node.inputs[1], node.inputs[1].shape
        per_channel = math.prod(d for d in shape[1:] if isinstance(d, int)) if shape is not None else 1
        moved = out if node.op_type == "Conv" else float(sizes.get(node.inputs[0], 0)) if node.inputs[0] else out
        return 2.0 * moved * max(per_channel, 1) if weight is not None else out
    if node.op_type in RECURRENT:
        weights = sum(v.const_value.size for v in node.inputs if v is not None and v.const_value is not None)
        return 2.0 * weights * max(out / max(_last(node.outputs[0]), 1), 1)
    return out


def _inner(node: ir.Node, sizes: Mapping[ir.Value, int]) -> float:
    """The length of the products that a matrix product sums."""
    weight = node.inputs[1]
    if weight is not None and weight.shape is not None and len(weight.shape) >= 2:
        axis = -1 if node.op_type == "Gemm" and "transB" in node.attributes and node.attributes["transB"].value else -2
        inner = weight.shape[axis]
        if isinstance(inner, int):
            return float(inner)
    first = node.inputs[0]
    return float(_last(first)) if first is not None else 1.0


def _last(value: ir.Value) -> int:
    if value.shape is not None and len(value.shape) and isinstance(value.shape[-1], int):
        return int(value.shape[-1])
    return 1
