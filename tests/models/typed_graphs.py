"""The same graph in any float type, so that a typed one can be held against its FP32 twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.models.build import graph, model, node, value

FLOAT, HALF, BRAIN = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16


def tensor(name: str, elem_type: int, array: Any) -> onnx.TensorProto:
    """Values that every format holds exactly."""
    held = np.asarray(array, np.float32).astype(helper.tensor_dtype_to_np_dtype(elem_type))
    return onnx.TensorProto(name=name, data_type=elem_type, dims=held.shape, raw_data=held.tobytes())


def weights(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).integers(-64, 65, shape) / 32).astype(np.float32)


def mlp(kind: int, factor: float = 1.0) -> onnx.ModelProto:
    """A product, squares and their mean in steps, a second product, a softmax."""
    nodes = [
        node("MatMul", "x w0", "a"),
        node("Mul", "a s", "b"),
        node("Mul", "b b", "c"),
        node("ReduceMean", "c", "m", axes=[-1], keepdims=1),
        node("Sqrt", "m", "r"),
        node("Div", "b r", "n"),
        node("MatMul", "n w1", "l"),
        node("Softmax", "l", "y", axis=-1),
    ]
    held = [
        tensor("w0", kind, weights((32, 64))),
        tensor("w1", kind, weights((64, 8), 1) / 8),
        tensor("s", kind, factor),
    ]
    return model(nodes, [value("x", kind, ("n", 32))], [value("y", kind, ("n", 8))], held)


def attributes(kind: int) -> onnx.ModelProto:
    """Attributes that name a type or hold values: of a fill, a table, a cast, a quantisation."""
    nodes = [
        node("Shape", "x", "shape"),
        node("ConstantOfShape", "shape", "fill", value=tensor("", kind, [2.5])),
        node("EyeLike", "x", "eye", dtype=kind),
        node("Cast", "i", "k", to=kind),
        node("QuantizeLinear", "x scale zero", "q"),
        node("DequantizeLinear", "q scale zero", "d"),
        node("Sum", "fill eye k d", "y"),
    ]
    held = [tensor("scale", kind, 0.25), onnx.numpy_helper.from_array(np.array(3, np.uint8), "zero")]
    inputs = [value("x", kind, (4, 4)), value("i", TensorProto.INT64, (4, 4))]
    return model(nodes, inputs, [value("y", kind, (4, 4))], held, opset=21, ir_version=10)


def branch(kind: int) -> onnx.ModelProto:
    """Weights and types within the bodies of an If and a Loop."""
    double = graph([node("Mul", "x w", "t")], [], [value("t", kind, (4,))], [tensor("w", kind, [2.0] * 4)])
    half = graph([node("Div", "x v", "e")], [], [value("e", kind, (4,))], [tensor("v", kind, [4.0] * 4)])
    body = graph(
        [node("Identity", "more", "on"), node("Add", "state step", "next")],
        [value("n", TensorProto.INT64, ()), value("more", TensorProto.BOOL, ()), value("state", kind, (4,))],
        [value("on", TensorProto.BOOL, ()), value("next", kind, (4,))],
        [tensor("step", kind, [0.25, 0.5, 0.75, 1.0])],
    )
    nodes = [
        node("If", "c", "chosen", then_branch=double, else_branch=half),
        node("Loop", "trips - chosen", "y", body=body),
    ]
    trips = onnx.numpy_helper.from_array(np.array(3, np.int64), "trips")
    inputs = [value("x", kind, (4,)), value("c", TensorProto.BOOL, ())]
    return model(nodes, inputs, [value("y", kind, (4,))], [trips])


def function(kind: int) -> onnx.ModelProto:
    """A cast and a fill within a local function."""
    inner = [
        helper.make_node("Cast", ["a"], ["h"], to=kind),
        helper.make_node("Constant", [], ["two"], value=tensor("", kind, 2.0)),
        helper.make_node("Mul", ["h", "two"], ["out"]),
    ]
    defined = helper.make_function("here", "Twice", ["a"], ["out"], inner, [helper.make_opsetid("", 17)])
    nodes = [node("Twice", "x", "t", domain="here"), node("Relu", "t", "y")]
    made = model(nodes, [value("x", FLOAT, (4,))], [value("y", kind, (4,))], domains=["here"])
    made.functions.append(defined)
    return made


GRAPHS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "mlp": mlp,
    "attributes": attributes,
    "branch": branch,
    "function": function,
}


def samples(proto: onnx.ModelProto, count: int = 4) -> list[dict[str, NDArray[Any]]]:
    """Values that every format holds exactly."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(count):
        feed: dict[str, NDArray[Any]] = {}
        for each in proto.graph.input:
            shape = [dim.dim_value or 2 for dim in each.type.tensor_type.shape.dim]
            whole = rng.integers(-64, 65, shape)
            kind = each.type.tensor_type.elem_type
            if kind in (FLOAT, HALF, BRAIN):
                feed[each.name] = np.asarray(whole / 32, np.float32)
            else:
                feed[each.name] = np.asarray(whole > 0 if kind == TensorProto.BOOL else whole)
        found.append(feed)
    return found


def states_fp32() -> onnx.ModelProto:
    """What the engine of tests/data/layers/inspector_11.json was built from; there `mm` lost its FP32."""
    return model(
        [
            node("Relu", "x", "r", name="relu"),
            node("Cast", "r", "c", name="to32", to=FLOAT),
            node("ReduceMean", "c", "m", name="mean"),
            node("Sqrt", "m", "s", name="sqrt"),
            node("MatMul", "c s", "y", name="mm"),
        ],
        [value("x", HALF, (4, 4))],
        [value("y", FLOAT, None)],
    )
