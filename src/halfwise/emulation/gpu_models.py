"""The models that a GPU makes weights with: rounded, multiplied, unpacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from halfwise.core.formats import Format
from halfwise.emulation.unpacked_tensor import Layout

__all__ = ["multiplying", "rounding", "unpacking"]

_WIDE = onnx.TensorProto.FLOAT
_HALF = np.dtype(np.float16)
_OPERATORS = {"subtract": "Sub", "multiply": "Mul"}


def rounding(stored: np.dtype[Any]) -> onnx.ModelProto:
    """FP32 to FP16 and back; what is stored in FP16 is only widened."""
    if stored == _HALF:
        return _model([helper.make_node("Cast", ["x"], ["y"], to=_WIDE)], {"x": onnx.TensorProto.FLOAT16})
    return _model(_rounded("x"), {"x": _WIDE})


def multiplying(factors: int, *, rounded: bool) -> onnx.ModelProto:
    """Times factors, and then the same."""
    names = [f"factor{number}" for number in range(factors)]
    products = [f"product{number}" for number in range(factors)]
    nodes = [
        helper.make_node("Mul", [product, factor], [target])
        for product, factor, target in zip(["x", *products], names, products, strict=False)
    ]
    last = products[-1]
    end = _rounded(last) if rounded else [helper.make_node("Identity", [last], ["y"])]
    return _model([*nodes, *end], dict.fromkeys(["x", *names], _WIDE))


def unpacking(at: Layout, changes: Sequence[np.ufunc], *, rounded: bool) -> onnx.ModelProto:
    """Rows of bytes, the numbers of each in a table, and what is done with them in blocks."""
    names = [f"change{number}" for number in range(len(changes))]
    nodes = [
        helper.make_node("Cast", ["x"], ["bytes"], to=onnx.TensorProto.INT32),
        helper.make_node("Gather", ["table", "bytes"], ["taken"]),
        helper.make_node("Reshape", ["taken", "blocks"], ["value0"]),
    ]
    for number, (by, name) in enumerate(zip(changes, names, strict=True)):
        nodes.append(helper.make_node(_OPERATORS[by.__name__], [f"value{number}", name], [f"value{number + 1}"]))
    nodes.append(helper.make_node("Reshape", [f"value{len(changes)}", "rows"], ["whole"]))
    end = _rounded("whole") if rounded else [helper.make_node("Identity", ["whole"], ["y"])]
    shapes = {"blocks": at.blocks, "rows": (-1, at.columns)}
    return _model([*nodes, *end], {"x": onnx.TensorProto.UINT8} | dict.fromkeys(["table", *names], _WIDE), shapes)


def _rounded(name: str) -> list[onnx.NodeProto]:
    """To FP16 and back, finite values beyond its range clamped."""
    return [
        helper.make_node("Clip", [name, "least", "most"], ["near"]),
        helper.make_node("Cast", ["near"], ["narrow"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("Cast", ["narrow"], ["rounded"], to=_WIDE),
        helper.make_node("Sub", [name, name], ["nothing"]),
        helper.make_node("Equal", ["nothing", "zero"], ["finite"]),
        helper.make_node("Where", ["finite", "rounded", name], ["y"]),
    ]


def _model(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, int], shapes: Mapping[str, Sequence[int]] = {}
) -> onnx.ModelProto:
    constants = {"least": -Format.FP16.max, "most": Format.FP16.max, "zero": 0.0}
    held = [numpy_helper.from_array(np.array(number, np.float32), name) for name, number in constants.items()]
    held += [numpy_helper.from_array(np.array(shape, np.int64), name) for name, shape in shapes.items()]
    read = {name for each in nodes for name in each.input}
    ends = [helper.make_tensor_value_info(name, kind, None) for name, kind in {**inputs, "y": _WIDE}.items()]
    graph = helper.make_graph(nodes, "weight", ends[:-1], ends[-1:], [each for each in held if each.name in read])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
