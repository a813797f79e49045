"""A model of one operation many times over, side by side, so that its kernel is timed and not what starts it."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from halfwise.emulation.timing.law import Precision
from halfwise.emulation.timing.operation import Attribute, Operand, Operation

__all__ = ["copies_of", "timed_feed", "timed_model"]

Array = NDArray[Any]

_OWN_DOMAIN = "com.microsoft"
_IR_VERSION = 10
_LEAST, _MOST = 4, 96
_MOST_SEARCHED = 16  # of what looks for its algorithm anew in each copy
_BYTES = 256 << 20  # of all outputs


def copies_of(operation: Operation) -> int:
    """How many stand side by side: fewer of large ones."""
    each = 4 * sum(math.prod(shape) for shape in operation.outputs)
    most = _MOST_SEARCHED if operation.op in ("Conv", "ConvTranspose", "FusedConv") else _MOST
    return max(_LEAST, min(most, _BYTES // max(each, 1)))


def timed_model(operation: Operation, precision: Precision, copies: int) -> onnx.ModelProto:
    """Weights and what says how (axes, sizes) are stored in it; everything else is an input."""
    made = np.dtype(np.float16 if precision == "fp16" else np.float32)
    read = made if operation.op != "Cast" else np.dtype(np.float32 if precision == "fp16" else np.float16)
    inputs, weights, names = [], [], []
    for slot, operand in enumerate(operation.inputs):
        name = "" if operand is None else f"x{slot}"
        names.append(name)
        if operand is None:
            continue
        array = _array(operation, slot, operand, read)
        if _stored(operation, slot, operand):
            weights.append(numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(name, kind, operand.shape))
    attributes = {name: _plain(value) for name, value in operation.attributes.items()}
    if operation.op == "Cast":
        attributes["to"] = helper.np_dtype_to_tensor_dtype(made)
    nodes, outputs = [], []
    for copy in range(copies):
        results = [f"y{copy}_{place}" for place in range(len(operation.outputs))]
        nodes.append(helper.make_node(operation.op, names, results, f"n{copy}", domain=operation.domain, **attributes))
        for place, name in enumerate(results):
            outputs.append(helper.make_tensor_value_info(name, _result_type(operation, place, made), None))
    graph = helper.make_graph(nodes, "timed", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", operation.opset), helper.make_opsetid(_OWN_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def timed_feed(operation: Operation, precision: Precision) -> dict[str, Array]:
    made = np.dtype(np.float16 if precision == "fp16" else np.float32)
    read = made if operation.op != "Cast" else np.dtype(np.float32 if precision == "fp16" else np.float16)
    return {
        f"x{slot}": _array(operation, slot, operand, read)
        for slot, operand in enumerate(operation.inputs)
        if operand is not None and not _stored(operation, slot, operand)
    }


def _stored(operation: Operation, slot: int, operand: Operand) -> bool:
    return slot > 0 and (operand.fixed or bool(operand.values))


def _array(operation: Operation, slot: int, operand: Operand, dtype: np.dtype[Any]) -> Array:
    if operand.kind == "float" and operation.op == "Resize" and slot > 0:
        dtype = np.dtype(np.float32)
    kind = {"float": dtype, "int": np.dtype(np.int64), "bool": np.dtype(np.bool_)}[operand.kind]
    if operand.values:
        return np.asarray(operand.values).astype(kind).reshape(operand.shape)
    if operand.kind != "float":
        return np.zeros(operand.shape, kind)
    rng = np.random.default_rng(zlib.crc32(f"{operation.op}{slot}".encode()))
    drawn = rng.standard_normal(min(operand.size, 1 << 16), dtype=np.float32) * np.float32(0.1)
    return np.resize(drawn, operand.shape).astype(kind)


def _result_type(operation: Operation, place: int, dtype: np.dtype[Any]) -> int:
    if operation.op in ("ArgMax", "ArgMin") or (operation.op == "TopK" and place == 1):
        return int(onnx.TensorProto.INT64)
    if operation.op in ("Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "And", "Or"):
        return int(onnx.TensorProto.BOOL)
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _plain(value: Attribute) -> Any:
    if isinstance(value, tuple):
        return [int(each) if float(each).is_integer() else each for each in value]
    return value
