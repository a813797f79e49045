"""A model of one operation many times over, side by side, so that its kernel is timed and not what starts it."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from halfwise.emulation.timing.operation import Attribute, Operand, Operation
from halfwise.emulation.timing.record import Precision

__all__ = ["Load", "copies_of", "load_for", "reads_weights", "timed_feed", "timed_model"]

Array = NDArray[Any]

_OWN_DOMAIN = "com.microsoft"
_IR_VERSION = 10
_LEAST, _MOST = 4, 96
_MOST_SEARCHED = 16  # of what looks for its algorithm anew in each copy
_LOADED = 3  # of which two stand behind a load
_COLD = 6  # with a load between them
_BYTES = 256 << 20  # of all outputs
_PASSES = 6  # over the load: the host then starts graphs sooner than they end
_BEYOND = 1.3  # times the cache: more than it holds
_WEIGHTS = 1 << 14  # values: fewer are read in no time


@dataclass(frozen=True)
class Load:
    """Passes over more memory than the cache holds: before the copies, or, `between` them, so that none is cached.

    `alone`: without the copies. What a graph takes beyond the load alone is what its copies take.
    """

    values: int
    between: bool = False
    alone: bool = False


def load_for(cache: int, precision: Precision, *, between: bool = False, alone: bool = False) -> Load:
    return Load(int(_BEYOND * cache) // (2 if precision == "fp16" else 4), between, alone)


def reads_weights(operation: Operation) -> bool:
    """Whether it reads stored numbers, not just a few, beside what was just computed."""
    data = operation.inputs[0] if operation.inputs else None
    if data is None or data.kind != "float" or not data.shape or data.fixed or operation.op in ("Cast", "Gather"):
        return False
    return any(
        each is not None and each.kind == "float" and each.fixed and each.size >= _WEIGHTS
        for each in operation.inputs[1:]
    )


def copies_of(operation: Operation, load: Load | None = None) -> int:
    """How many stand side by side: fewer of large ones."""
    if load is not None and load.between:
        return _COLD
    each = 4 * sum(math.prod(shape) for shape in operation.outputs)
    most = _MOST_SEARCHED if operation.op in ("Conv", "ConvTranspose", "FusedConv") else _MOST
    return max(_LEAST, min(most if load is None else 2 * most // _LOADED, _BYTES // max(each, 1)))


def timed_model(operation: Operation, precision: Precision, copies: int, load: Load | None = None) -> onnx.ModelProto:
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
        if load is not None and load.alone and (slot > 0 or not load.between):
            continue
        if _stored(operation, slot, operand):
            weights.append(numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(name, kind, operand.shape))
    attributes = {name: _plain(value) for name, value in operation.attributes.items()}
    if operation.op == "Cast":
        attributes["to"] = helper.np_dtype_to_tensor_dtype(made)
    nodes, outputs = [], []
    if load is not None:
        inputs.append(helper.make_tensor_value_info("load", helper.np_dtype_to_tensor_dtype(read), [1, load.values]))
        weights.append(numpy_helper.from_array(np.array(0, np.int64), "first"))
    for each in range(_PASSES if load is not None and not load.between else 0):
        nodes += _pass_over(each)
        outputs.append(helper.make_tensor_value_info(f"seen{each}", helper.np_dtype_to_tensor_dtype(read), None))
    for copy in range(copies):
        if load is not None and load.between:  # what was just computed is cached, as it is in a network
            nodes += [*_pass_over(copy), helper.make_node("Add", ["x0", f"seen{copy}"], [f"near{copy}"], f"a{copy}")]
            names[0] = f"near{copy}"
        if load is not None and load.alone:
            if load.between:
                kind = helper.np_dtype_to_tensor_dtype(read)
                outputs.append(helper.make_tensor_value_info(names[0], kind, None))
            continue
        results = [f"y{copy}_{place}" for place in range(len(operation.outputs))]
        nodes.append(helper.make_node(operation.op, names, results, f"n{copy}", domain=operation.domain, **attributes))
        for place, name in enumerate(results):
            outputs.append(helper.make_tensor_value_info(name, _result_type(operation, place, made), None))
    graph = helper.make_graph(nodes, "timed", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", operation.opset), helper.make_opsetid(_OWN_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def _pass_over(place: int) -> list[onnx.NodeProto]:
    """Reads and writes all of the load; its first number comes out."""
    return [
        helper.make_node("Relu", ["load"], [f"passed{place}"], f"p{place}"),
        helper.make_node("Gather", [f"passed{place}", "first"], [f"seen{place}"], f"s{place}", axis=1),
    ]


def timed_feed(operation: Operation, precision: Precision, load: Load | None = None) -> dict[str, Array]:
    made = np.dtype(np.float16 if precision == "fp16" else np.float32)
    read = made if operation.op != "Cast" else np.dtype(np.float32 if precision == "fp16" else np.float16)
    passed = {} if load is None else {"load": np.zeros((1, load.values), read)}
    slots = range(len(operation.inputs)) if load is None or not load.alone else range(int(load.between))
    return passed | {
        f"x{slot}": _array(operation, slot, operand, read)
        for slot, operand in enumerate(operation.inputs)
        if operand is not None and slot in slots and not _stored(operation, slot, operand)
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
