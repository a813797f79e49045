"""What powers of two become in ONNX Runtime's own operators: norms of a sum, products with a factor, packed weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.contrib.schemas import DOMAIN
from halfwise.model.patterns.view import attribute
from halfwise.repair.graph_edit import is_constant, whole
from halfwise.repair.scale_atoms import PINNED, Weights
from halfwise.repair.scale_blocks import HeldBlocks, blocks, stored
from halfwise.repair.scale_ground import Flow
from halfwise.repair.scale_layout import Layout
from halfwise.repair.scale_norms import norm_reach
from halfwise.repair.scale_quantised import by_blocks, quantised_handler

__all__ = ["own_handler"]


def own_handler(flow: Flow, node: ir.Node) -> Callable[[ir.Node], bool] | None:
    """What hands powers of two on through an operator of the runtime's own, or a quantiser; None where nothing does."""
    found = _HANDLERS.get((node.domain, node.op_type))
    return quantised_handler(flow, node) if found is None else lambda given: found(flow, given)


def _simplified(flow: Flow, node: ir.Node) -> bool:
    value = flow._data(node)
    return value is not None and "epsilon" in node.attributes and _normalised(flow, node, flow._uniform(value), (1,))


def _skip_norm(flow: Flow, node: ir.Node) -> bool:
    """The sum carries one power of two, as its operands do; it may be handed out, and the norm does not see it."""
    centred = node.op_type == "SkipLayerNormalization"
    slots = (0, 1, 4 if centred else 3)
    total = node.outputs[3] if len(node.outputs) > 3 and node.outputs[3].name else None
    if "epsilon" not in node.attributes or any(output.name and output.uses() for output in node.outputs[1:3]):
        return False
    if not flow._elementwise(node, slots=[slot for slot in slots if slot < len(node.inputs)]):
        return False
    layout = flow._uniform(node.outputs[0])
    del flow.layouts[node.outputs[0]]
    if total is not None:
        flow.layouts[total] = replace(layout, cap=np.minimum(layout.cap, flow.high(total)))
    return _normalised(flow, node, layout, (2, 3) if centred else (2,))


def _normalised(flow: Flow, node: ir.Node, layout: Layout, slots: tuple[int, ...]) -> bool:
    """Behind the norm the scale and the bias may carry powers of two of their own, one a channel."""
    flow.epsilons.append((node, layout.atoms))
    rank = flow.rank(node.outputs[0])
    arrays = [(slot, whole(node.inputs[slot])) for slot in slots if slot < len(node.inputs) and node.inputs[slot]]
    if rank is None or any(array is None or array.ndim != 1 for _, array in arrays):
        return flow._write(node, None, np.array([PINNED]))
    made, cap = None, np.zeros(1)
    for slot, array in arrays:
        assert array is not None
        if made is None:
            made = flow.atoms.fresh(len(array))
            square, peak, _ = blocks(array, (0,))
            flow.weights.append(Weights(node, slot, made, (len(array),), square[:, None], peak[:, None]))
            cap = peak * norm_reach(node, [len(array)])
        else:
            cap = cap + flow._offset(node, slot, array, Layout.along(0, made, np.zeros(len(made))), 1)
    assert made is not None
    return flow._write(node, rank - 1, made, cap)


def _fused_product(flow: Flow, node: ir.Node) -> bool:
    """Its factor leaves powers of two as they are."""
    value, array = node.inputs[0], stored(node.inputs[1])
    if any(attribute(node, name, 0) for name in ("transA", "transBatchA", "transBatchB")):
        return False
    if array is None:
        return not attribute(node, "transB", 0) and flow._matmul(node)
    rank = flow.rank(value)
    if value is None or rank is None or rank < 2 or array.ndim != 2 or is_constant(value):
        return False
    return flow._linear(node, 1, array, value, (0, 1, rank - 1) if attribute(node, "transB", 0) else (1, 0, rank - 1))


def _packed_product(flow: Flow, node: ir.Node) -> bool:
    """The scales of the packed weights take the difference of the powers of two in front and behind: those of a block,
    or all, where they do not lie apart."""
    value, scales = flow._data(node), whole(node.inputs[2])
    bias = node.inputs[5] if len(node.inputs) > 5 else None
    if value is None or scales is None or (bias is not None and not is_constant(bias)):
        return False
    rank, inputs, block = flow.rank(value), int(attribute(node, "K", 0)), int(attribute(node, "block_size", 0))
    if scales.ndim == 2 and rank is not None and scales.shape[1] * block == inputs:
        made = flow.atoms.fresh(len(scales))
        by_blocks(flow, value, inputs, Weights(node, 2, made, (), *HeldBlocks.of(scales, 0, 1)[:2]), scales, 0)
        if bias is not None:
            flow._offset(node, 5, _array(bias), Layout.along(0, made, np.zeros(len(made))), 1)
        return flow._write(node, rank - 1, made)
    layout, made = flow._uniform(value), flow.atoms.fresh(1)
    square, peak, _ = blocks(scales, ())
    shape = (1,) * scales.ndim
    square, peak = (np.reshape(each, (1, 1)) for each in (square, peak))
    flow.weights.append(Weights(node, 2, made, shape, square, peak, layout.atoms[:, None], shape))
    if bias is not None:
        array = _array(bias)
        flow._offset(node, 5, array, Layout.along(None, made, np.zeros(1)), array.ndim)
    return flow._write(node, None, made)


def _array(constant: ir.Value) -> NDArray[Any]:
    array = whole(constant)
    assert array is not None
    return array


_HANDLERS: Mapping[tuple[str, str], Callable[[Flow, ir.Node], bool]] = {
    ("", "SimplifiedLayerNormalization"): _simplified,
    (DOMAIN, "FusedMatMul"): _fused_product,
    (DOMAIN, "MatMulNBits"): _packed_product,
    (DOMAIN, "SkipLayerNormalization"): _skip_norm,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): _skip_norm,
}
