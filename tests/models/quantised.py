"""Quantised models as exporters write them: weights and activations behind DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.models.build import model, node, value, weight

__all__ = ["layers", "quantised", "samples"]

Array = np.ndarray[Any, Any]


def layers(depth: int = 2, width: int = 16, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32) for _ in range(depth)]


def quantised(
    matrices: list[Array], opset: int = 19, step: float = 0.05, kind: int = TensorProto.INT8, blocks: int = 0
) -> onnx.ModelProto:
    """x -> Q -> DQ -> MatMul(DQ(weights)) -> Tanh -> ..., the weights by channel, or in blocks of rows."""
    width = len(matrices[0])
    nodes, weights = [], [weight("step", np.float32(step)), whole("zero", np.zeros(()), kind)]
    tensor = "x"
    for index, matrix in enumerate(matrices):
        rows = matrix.reshape(-1, blocks or width, width)
        scale = (np.abs(rows).max(axis=1) / 7.0).astype(np.float32)
        steps = np.rint(rows / scale[:, None]).reshape(matrix.shape)
        small = TensorProto.INT4 if blocks else TensorProto.INT8
        weights += [whole(f"w{index}", steps, small), weight(f"s{index}", scale if blocks else scale[0])]
        attributes = {"axis": 0, "block_size": blocks} if blocks else {"axis": 1}
        nodes += [
            node("QuantizeLinear", f"{tensor} step zero", f"q{index}"),
            node("DequantizeLinear", f"q{index} step zero", f"d{index}"),
            node("DequantizeLinear", f"w{index} s{index}", f"v{index}", **attributes),
            node("MatMul", f"d{index} v{index}", f"m{index}"),
            node("Tanh", f"m{index}", f"t{index}"),
        ]
        tensor = f"t{index}"
    last = value(tensor, shape=(4, width))
    return model(nodes, [value("x", shape=(4, width))], [last], weights, opset=opset, ir_version=10)


def whole(name: str, array: Array, kind: int) -> onnx.TensorProto:
    """A tensor of a type that NumPy may not have."""
    return helper.make_tensor(name, kind, array.shape, np.asarray(array, np.float32).reshape(-1).tolist())


def samples(width: int = 16, count: int = 4) -> list[dict[str, Array]]:
    rng = np.random.default_rng(7)
    return [{"x": rng.standard_normal((4, width)).astype(np.float32)} for _ in range(count)]
