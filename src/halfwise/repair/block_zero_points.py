"""Weights of 4 bits with a scale for each block that TensorRT reads only about a zero point of 0, as INT4 about 0.

`(v - z) s` is `(v - 8) s + (8 - z) s`. What a block has besides goes through the products, as in `block_weights`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from halfwise.model.bodies import nodes_in
from halfwise.model.contrib.packed import four_bits, positive
from halfwise.model.contrib.writer import dims_of, stored
from halfwise.model.model import Model
from halfwise.model.normal_form import normalise
from halfwise.repair.graph_edit import GraphEdit

__all__ = ["with_centred_blocks"]

_KINDS = {ir.DataType.INT4: 0, ir.DataType.UINT4: 8}  # and what is taken off to hold it as INT4


@dataclass(frozen=True, eq=False)
class _Weight:
    """What a node dequantises along its first axis: as INT4, its scales, and what each block has besides."""

    numbers: ir.TensorProtocol
    scales: NDArray[np.float32]
    shifts: NDArray[np.float32]


def with_centred_blocks(model: Model, types: Collection[str], negative: Collection[str]) -> Model:
    """The given model where there are none such. `types` may have scales of blocks, and those in `negative` may have
    them below 0."""
    signed = "INT4" in negative
    names = {node.name for node in model.nodes if "INT4" in types and _weight(node, signed=signed) is not None}
    if not names:
        return model
    copy = model.ir.clone()
    for node in [node for node in nodes_in(copy.graph) if node.name in names]:
        weight = _weight(node, signed=signed)
        assert weight is not None
        _centre(copy, node, weight)
    RemoveUnusedNodesPass()(copy)
    normalise(copy)
    return replace(model, ir=copy)


def _weight(node: ir.Node, *, signed: bool) -> _Weight | None:
    """None of a weight that is read as it is, and of one that is no factor of products alone where it would have to."""
    if node.op_type != "DequantizeLinear" or node.domain or node.outputs[0].dtype is not ir.DataType.FLOAT:
        return None
    held, block = node.inputs[0], node.attributes.get_int("block_size", 0)
    tensor = held.const_value if held is not None else None
    least, scales = _KINDS.get(tensor.dtype) if tensor is not None else None, stored(node, 1)
    if tensor is None or least is None or scales is None or scales.ndim != 2 or block is None or block < 2:
        return None
    has_zeros = len(node.inputs) > 2 and node.inputs[2] is not None
    zeros = stored(node, 2) if has_zeros else np.zeros_like(scales)
    if zeros is None or node.attributes.get_int("axis", 1) not in (0, -2) or tensor.shape[0] != len(scales) * block:
        return None
    scales = scales.astype(np.float32)
    below = np.float32(0) if signed else (scales < 0).astype(np.float32)
    shifts = np.asarray((least - below - zeros.astype(np.float32)) * scales, np.float32)
    is_read = not least and not shifts.any() and scales.all()
    if is_read or (shifts.any() and not _only_weighs(node)):
        return None
    made = partial(_numbers, tensor, least, np.repeat(scales, block, 0), signed=signed)
    numbers = ir.LazyTensor(made, ir.DataType.INT4, ir.Shape(tensor.shape.numpy()))
    return _Weight(numbers, positive(scales, signed=signed), shifts)


def _numbers(tensor: ir.TensorProtocol, least: int, scales: NDArray[np.float32], *, signed: bool) -> ir.TensorProtocol:
    numbers = tensor.numpy().astype(np.int8) - np.int8(least)
    if not signed:
        numbers = np.where(scales < 0, -1 - numbers, numbers)
    return four_bits(np.where(scales == 0, np.int8(0), numbers))


def _only_weighs(node: ir.Node) -> bool:
    """Whether only products with it read it, of rows whose number of dimensions is known."""
    value = node.outputs[0]
    uses = list(value.uses())
    return not value.is_graph_output() and all(
        slot == 1 and each.op_type == "MatMul" and not each.domain and dims_of(each, 0) for each, slot in uses
    )


def _centre(model: ir.Model, node: ir.Node, weight: _Weight) -> None:
    edit = GraphEdit(model, node, "centred")
    numbers = GraphEdit(model, node, "numbers").weight(weight.numbers)  # TensorRT names layers after nodes and weights
    scales = GraphEdit(model, node, "scales").constant(weight.scales)
    block: Any = node.attributes.get_int("block_size", 0)
    new = edit.op("DequantizeLinear", [numbers, scales], {"axis": 0, "block_size": block})
    new.type, new.shape = node.outputs[0].type, node.outputs[0].shape
    products = [each for each, _ in node.outputs[0].uses()]
    edit.replace(node.outputs[0], new)
    if not weight.shifts.any():
        return
    shifts = GraphEdit(model, node, "shifts").constant(weight.shifts)
    for product in products:
        _add(model, product, shifts, (len(weight.shifts), block))


def _add(model: ir.Model, product: ir.Node, shifts: ir.Value, parts: tuple[int, int]) -> None:
    """The sums of its rows over each block, times what the block has besides."""
    edit, x, y = GraphEdit(model, product, "blocks"), product.inputs[0], product.outputs[0]
    sizes = GraphEdit(model, product, "sizes")
    apart = edit.op("Reshape", [x, sizes.axes([0] * (len(dims_of(product, 0) or ()) - 1) + list(parts))])
    sums = edit.op("ReduceSum", [apart, sizes.axes([-1])], {"keepdims": 0})
    more = edit.op("MatMul", [sums, shifts])
    behind = GraphEdit(model, product, "whole")
    total = behind.op("Add", [y, more], after=True)
    total.shape = y.shape
    behind.replace(y, total, but=list(behind.made))
