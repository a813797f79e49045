"""Biases that are stored as INT32 behind a DequantizeLinear, as floats: TensorRT dequantises no such type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from halfwise.model.model import Model

__all__ = ["with_float_biases"]


def with_float_biases(model: Model) -> Model:
    """The same numbers, bit by bit, without the nodes that made them; the given model where there are none."""
    if not any(_integer_bias(node) for node in model.ir.graph):
        return model
    copy = model.ir.clone()
    for node in list(_all(copy.graph)):
        quantised, scale = node.inputs[0], node.inputs[1]
        assert quantised is not None and quantised.const_value is not None
        assert scale is not None and scale.const_value is not None
        bias = quantised.const_value.numpy().astype(np.float32) * scale.const_value.numpy()
        name = f"{node.outputs[0].name}_as_float"
        value = ir.Value(name=name, shape=ir.Shape(bias.shape), type=ir.TensorType(ir.DataType.FLOAT))
        value.const_value = ir.tensor(np.asarray(bias, dtype=np.float32), name=name)
        copy.graph.register_initializer(value)
        ir.convenience.replace_all_uses_with(node.outputs[0], value)
    RemoveUnusedNodesPass()(copy)
    return replace(model, ir=copy)


def _all(graph: ir.Graph) -> Iterator[ir.Node]:
    return (node for node in graph if _integer_bias(node))


def _integer_bias(node: ir.Node) -> bool:
    """One scale for all of it, or one for each element."""
    if node.op_type != "DequantizeLinear" or node.domain or "block_size" in node.attributes:
        return False
    given = [value for value in node.inputs if value is not None]
    if len(given) < 2 or any(value.const_value is None or not value.is_initializer() for value in given):
        return False
    bias, scale, *_ = (value.const_value for value in given)
    assert bias is not None and scale is not None
    if node.outputs[0].is_graph_output() or node.outputs[0].dtype is not ir.DataType.FLOAT:
        return False
    return bias.dtype is ir.DataType.INT32 and len(bias.shape) <= 1 and scale.size in (1, bias.size)
