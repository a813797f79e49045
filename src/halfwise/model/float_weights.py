"""Quantised weights that TensorRT does not dequantise, as floats: INT32, UINT8, zero points, single numbers, casts."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from halfwise.core.formats import Format
from halfwise.model.families import QUANTISERS
from halfwise.model.model import Model

__all__ = ["FloatWeights", "first_unread", "with_float_weights"]

_MOST = 1 << 28  # elements of all that is stored as floats: 1 GB in FP32
_BIASES = "INT32"
_NOT_HELD = "UINT8"  # is read where it is computed, and refused where it is stored


@dataclass(frozen=True)
class FloatWeights:
    """`stored`: nodes of weights that the target does not read as they are, biases of INT32 apart."""

    model: Model
    stored: tuple[str, ...] = ()


def with_float_weights(model: Model, types: Collection[str] | None, negative: Collection[str] = ()) -> FloatWeights:
    """The same numbers, bit by bit, without the nodes that made them. `types`: of quantised tensors that are read, by
    ONNX's name; None: all. `negative`: of these the ones whose scales may be below 0. Weights stay where others than
    they keep the target from reading the model anyway."""
    held = [node for node in model.graph if _held(node) or _widens(node)]
    always = [node for node in held if not _widens(node) and _refused(node, negative)]
    unread = [node for node in model.nodes if node not in always and not _reads(node, types)]
    size = sum(math.prod(_of(node, 0).shape.numpy()) for node in unread if node in held)
    if not all(node in held for node in unread) or size > _MOST:
        unread = []
    names = {node.name for node in (*always, *unread)}
    if not names:
        return FloatWeights(model)
    copy = model.ir.clone()
    for node in [node for node in copy.graph if node.name in names]:
        name = f"{node.outputs[0].name}_as_float"
        array = _dequantised(node)
        value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(ir.DataType.FLOAT))
        value.const_value = ir.tensor(array, name=name)
        copy.graph.register_initializer(value)
        ir.convenience.replace_all_uses_with(node.outputs[0], value)
    RemoveUnusedNodesPass()(copy)
    return FloatWeights(replace(model, ir=copy), tuple(node.name or "" for node in unread))


def first_unread(model: Model, types: Collection[str]) -> ir.Node | None:
    """The first node that quantises what TensorRT does not read: one that stays so before any whose weight could be a
    float."""
    unread = [node for node in model.nodes if not _reads(node, types)]
    return next((node for node in unread if not _held(node)), next(iter(unread), None))


def _reads(node: ir.Node, types: Collection[str] | None) -> bool:
    """Whether TensorRT reads what the node quantises or dequantises, as far as its own types tell."""
    if types is not None and _widens(node):
        return False
    if types is None or node.op_type not in QUANTISERS or node.domain:
        return True
    values = node.outputs if node.op_type == "QuantizeLinear" else node.inputs
    kind = values[0].dtype if values and values[0] is not None else None
    if kind is None:
        return True
    if kind.name == _NOT_HELD and values[0] is not None and values[0].is_initializer():
        return False
    return kind.name in (*types, _BIASES) and not _off_zero(node)


def _widens(node: ir.Node) -> bool:
    """Whether it is a cast of a weight of 8-bit floats, which TensorRT lets nothing read but DequantizeLinear."""
    value, output = node.inputs[0] if node.inputs else None, node.outputs[0]
    if node.op_type != "Cast" or node.domain or value is None or value.const_value is None:
        return False
    eighth = value.dtype is not None and value.dtype.name.startswith("FLOAT8")
    return eighth and value.is_initializer() and output.dtype is ir.DataType.FLOAT and not output.is_graph_output()


def _held(node: ir.Node) -> bool:
    """Whether it dequantises what is stored."""
    if node.op_type != "DequantizeLinear" or node.domain:
        return False
    given = [value for value in node.inputs if value is not None]
    if len(given) < 2 or any(value.const_value is None or not value.is_initializer() for value in given):
        return False
    output = node.outputs[0]
    return output.dtype is ir.DataType.FLOAT and not output.is_graph_output()


def _refused(node: ir.Node, negative: Collection[str]) -> bool:
    """What is refused of any type: a bias of INT32, a single number, a scale that is negative or that FP16 makes 0."""
    kind, shape, scale = _of(node, 0).dtype, _of(node, 0).shape, _constant(_of(node, 1))
    if kind is ir.DataType.INT32:
        return len(shape) <= 1 and "block_size" not in node.attributes and scale.size in (1, *shape.numpy())
    scale = np.abs(scale) if kind.name in negative else scale
    return len(shape) == 0 or bool((scale <= Format.FP16.smallest_subnormal / 2).any())


def _off_zero(node: ir.Node) -> bool:
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    return zero is not None and zero.const_value is not None and bool(_constant(zero).any())


def _of(node: ir.Node, slot: int) -> Any:
    return node.inputs[slot]


def _constant(value: ir.Value) -> NDArray[np.float32]:
    assert value.const_value is not None
    return value.const_value.numpy().astype(np.float32)


def _dequantised(node: ir.Node) -> NDArray[np.float32]:
    """One scale for all of it, one for each place along an axis, or one for each block along it."""
    numbers = _constant(_of(node, 0))
    if _widens(node):
        return numbers
    axis, block = node.attributes.get_int("axis", 1), node.attributes.get_int("block_size", 0)

    def spread(values: NDArray[np.float32]) -> NDArray[np.float32]:
        if block:
            return np.repeat(values, block, axis).take(range(numbers.shape[axis]), axis)
        if values.size == 1:
            return values.reshape(())
        return values.reshape([-1 if place == axis % numbers.ndim else 1 for place in range(numbers.ndim)])

    if len(node.inputs) > 2 and node.inputs[2] is not None:
        numbers = numbers - spread(_constant(node.inputs[2]))
    return np.asarray(numbers * spread(_constant(_of(node, 1))), np.float32)
