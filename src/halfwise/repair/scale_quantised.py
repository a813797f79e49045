"""What powers of two become at quantisers: a scale takes what its tensor carries, and the integers stay as they are.

2^k x / 2^k s is x / s: a QuantizeLinear whose scale carries what it reads gives the same integers. A DequantizeLinear
makes a power of two of its own by its scale. A quantised weight is a weight, turned or not: the scale behind its
integers takes the difference of the powers in front of the product and behind it. Where each block of inputs has a
scale, all of a block carry one power.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.families import PRODUCTS
from halfwise.model.patterns.view import attribute
from halfwise.repair.graph_edit import is_constant, whole
from halfwise.repair.scale_atoms import Ints, Weights
from halfwise.repair.scale_blocks import HeldBlocks, blocks
from halfwise.repair.scale_ground import Flow
from halfwise.repair.scale_layout import Layout
from halfwise.repair.scale_walk import sizes

__all__ = ["by_blocks", "quantised_handler"]


def quantised_handler(flow: Flow, node: ir.Node) -> Callable[[ir.Node], bool] | None:
    """None where nothing is quantised."""
    if node.domain:
        return None
    found = _HANDLERS.get(node.op_type)
    if node.op_type in PRODUCTS and _weight_scale(node, 1) is not None:
        found = _product
    elif node.op_type == "Transpose" and _turned(node) is not None:
        return lambda given: True  # of a weight, which the product behind it reads
    return None if found is None else lambda given: found(flow, given)


def _quantise(flow: Flow, node: ir.Node) -> bool:
    value, scale = flow._data(node), _scale(node)
    if value is None or scale is None:
        return False
    _note(flow, node, scale, flow._uniform(value).atoms)
    return True


def _quantise_by_range(flow: Flow, node: ir.Node) -> bool:
    """The scale is made of the tensor's own range, and carries what that does."""
    value = flow._data(node)
    if value is None:
        return False
    layout = flow._uniform(value)
    scale = node.outputs[1]
    flow.layouts[scale] = Layout.along(None, layout.atoms, np.array([flow.high(scale)]))
    return True


def _dequantise(flow: Flow, node: ir.Node) -> bool:
    scale, given = _scale(node), node.inputs[1]
    if scale is None and given is not None and given.dtype is ir.DataType.FLOAT:  # computed, with a power of its own
        return flow._write(node, None, flow._uniform(given).atoms)
    if scale is None:
        return False
    if _is_weight(node):  # of the product behind it
        return True
    made = flow.atoms.fresh(1)
    _note(flow, node, scale, made)
    return flow._write(node, None, made)


def _product(flow: Flow, node: ir.Node) -> bool:
    """By a quantised weight: its scale has one number, one for each of its outputs, or one for each block of inputs."""
    value, found = flow._data(node), _weight_scale(node, 1)
    rank = flow.rank(node.outputs[0])
    if value is None or found is None or rank is None or rank < 2 or not _is_plain(node):
        return False
    maker, scale = found
    extents, out = sizes(maker.outputs[0]) or [], _outputs_at(node)
    if out is not None and maker is not node.inputs[1].producer():  # type: ignore[union-attr]
        out = 1 - out
    axis = int(attribute(maker, "axis", 1)) % max(len(extents), 1)
    if scale.ndim == 2 and out is not None and len(extents) == 2 and axis != out and scale.shape[out] == extents[out]:
        return _product_by_blocks(flow, node, value, maker, scale, out)
    along = scale.ndim == 1 and len(scale) > 1 and axis == out and extents[axis] == len(scale)
    made = flow.atoms.fresh(len(scale) if along else 1)
    columns = flow._uniform(value).atoms
    if not _biased(flow, node, made):
        return False
    _note(flow, maker, scale, made, columns)
    place = (1 if node.op_type in ("Conv", "ConvTranspose") else rank - 1) if along else None
    return flow._write(node, place, made)


def _product_by_blocks(
    flow: Flow, node: ir.Node, value: ir.Value, maker: ir.Node, scale: NDArray[Any], out: int
) -> bool:
    inputs, rank = (sizes(maker.outputs[0]) or [])[1 - out], flow.rank(node.outputs[0])
    assert rank is not None
    if not isinstance(inputs, int) or inputs % scale.shape[1 - out] or flow.rank(value) != rank:
        return False
    made = flow.atoms.fresh(scale.shape[out])
    if not _biased(flow, node, made):
        return False
    by_blocks(flow, value, inputs, Weights(maker, 1, made, (), *HeldBlocks.of(scale, out, 1 - out)[:2]), scale, out)
    return flow._write(node, rank - 1, made)


def by_blocks(flow: Flow, value: ir.Value, inputs: int, weights: Weights, scale: NDArray[Any], out: int) -> None:
    """The scales of blocks take the power of each output, along the axis `out`, less that of the block's inputs."""
    count, rank = scale.shape[1 - out], flow.rank(value)
    assert rank is not None
    columns = flow._along(value, rank - 1, inputs).atoms.reshape(count, -1)
    flow.atoms.tie(columns, columns[:, :1])
    row, column = (tuple(scale.shape[i] if i == at else 1 for i in range(2)) for at in (out, 1 - out))
    flow.weights.append(replace(weights, row_shape=row, columns=columns[:, 0][None], column_shape=column))


def _biased(flow: Flow, node: ir.Node, made: Ints) -> bool:
    bias = node.inputs[2] if node.op_type != "MatMul" and len(node.inputs) > 2 else None
    if bias is None:
        return True
    if is_constant(bias):
        array = whole(bias)
        if array is None or (len(made) > 1 and array.shape not in ((len(made),), (1, len(made)))):
            return False
        axis = 0 if len(made) > 1 else None
        flow._offset(node, 2, array, Layout.along(axis, made, np.zeros(len(made))), 1)
        return True
    found = _weight_scale(node, 2)
    if found is None:
        return False
    maker, scale = found
    if scale.shape != made.shape:
        flow.atoms.tie(made, made[:1])
        made = made[:1]
    _note(flow, maker, scale, made)
    return True


def _note(flow: Flow, node: ir.Node, scale: NDArray[Any], rows: Ints, columns: Ints | None = None) -> None:
    """The scale of a quantiser is a constant that takes the power of its rows, less that of its columns."""
    by_row = scale.ndim == 1 and len(rows) == len(scale)
    square, peak, _ = blocks(scale, (0,) if by_row else ())
    square, peak = (np.reshape(each, (len(rows), 1)) for each in (square, peak))
    shape = (len(rows),) if by_row else (1,) * scale.ndim
    read = (None, ()) if columns is None else (columns[None], (1,) * scale.ndim)
    flow.weights.append(Weights(node, 1, rows, shape, square, peak, *read))


def _scale(node: ir.Node) -> NDArray[Any] | None:
    """The constant numbers of a quantiser."""
    value = node.inputs[1] if len(node.inputs) > 1 else None
    if value is None or value.dtype is not ir.DataType.FLOAT:
        return None
    return whole(value)


def _weight_scale(node: ir.Node, slot: int) -> tuple[ir.Node, NDArray[Any]] | None:
    """Of a quantised weight in this slot: what makes it of its integers, and the scale."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    maker = value.producer() if value is not None else None
    if maker is not None and maker.op_type == "Transpose":
        maker = _turned(maker) if node.op_type in ("MatMul", "Gemm") else None
    if maker is None or maker.domain or maker.op_type != "DequantizeLinear" or not _is_weight(maker):
        return None
    scale = _scale(maker)
    return None if scale is None else (maker, scale)


def _turned(node: ir.Node) -> ir.Node | None:
    """What makes the weight of two axes that this Transpose turns for one product."""
    maker = node.inputs[0].producer() if node.inputs[0] is not None else None
    turns = list(attribute(node, "perm", None) or (1, 0)) == [1, 0]
    is_weight = maker is not None and maker.op_type == "DequantizeLinear" and not maker.domain and _is_weight(maker)
    return maker if is_weight and turns and not node.domain else None


def _is_weight(node: ir.Node) -> bool:
    """Whether it makes a constant that one product alone reads, turned or not."""
    if not is_constant(node.inputs[0]):
        return False
    reader, slot = _reader(node)
    if reader is not None and reader.op_type == "Transpose" and len(sizes(node.outputs[0]) or []) == 2:
        reader, slot = _reader(reader)
    return reader is not None and reader.op_type in PRODUCTS and slot in (1, 2)


def _reader(node: ir.Node) -> tuple[ir.Node | None, int]:
    """The only one, of the same graph."""
    made = node.outputs[0]
    readers = list(made.uses())
    if len(readers) != 1 or made.is_graph_output() or made.dtype is not ir.DataType.FLOAT:
        return None, 0
    reader, slot = readers[0]
    return (reader, slot) if reader.graph is node.graph and not reader.domain else (None, 0)


def _is_plain(node: ir.Node) -> bool:
    if node.op_type != "Gemm":
        return True
    return not attribute(node, "transA", 0) and all(float(attribute(node, f, 1.0)) == 1.0 for f in ("alpha", "beta"))


def _outputs_at(node: ir.Node) -> int | None:
    """The axis of a product's weight along which its outputs lie."""
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    if node.op_type == "ConvTranspose":
        return 1 if int(attribute(node, "group", 1)) == 1 else None
    if node.op_type == "Conv":
        return 0
    weight = node.inputs[1]
    return 1 if weight is not None and len(sizes(weight) or []) == 2 else None


_HANDLERS: Mapping[str, Callable[[Flow, ir.Node], bool]] = {
    "QuantizeLinear": _quantise,
    "DequantizeLinear": _dequantise,
    "DynamicQuantizeLinear": _quantise_by_range,
}
