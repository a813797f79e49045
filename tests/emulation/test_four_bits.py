"""Tensors of INT4 and UINT4 between the nodes of a model, as its weights and as what a quantiser makes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from halfwise.verbs.trace import trace
from tests.models.build import model, node, value, weight

RNG = np.random.default_rng(0)
FEEDS = [{"x": RNG.normal(size=(2, 7)).astype(np.float32)} for _ in range(4)]
TYPES = [(ml_dtypes.int4, -8), (ml_dtypes.uint4, 0)]


def stored(dtype: Any, least: int) -> onnx.ModelProto:
    """A product with a 4-bit weight that has zero points, as ONNX Runtime's quantiser of weights writes it; of odd
    size."""
    table = RNG.integers(least, least + 16, size=(7, 5)).astype(np.int8).astype(dtype)
    points = np.full(5, least + 8).astype(dtype)
    nodes = [
        node("DequantizeLinear", "w s z", "t", axis=1),
        node("MatMul", "x t", "p"),
        node("Mul", "p p", "y"),
    ]
    weights = [weight("w", table), weight("s", np.full(5, 100.0, np.float32)), weight("z", points)]
    return model(nodes, [value("x", shape=(2, 7))], [value("y", shape=(2, 5))], weights, opset=21, ir_version=10)


def made(dtype: Any, least: int) -> onnx.ModelProto:
    """An activation that goes through 4 bits."""
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"), node("Mul", "d c", "y")]
    weights = [weight("s", np.float32(0.5)), weight("z", np.array(least + 8).astype(dtype)), weight("c", np.float32(3))]
    return model(nodes, [value("x", shape=(2, 7))], [value("y", shape=(2, 7))], weights, opset=21, ir_version=10)


@pytest.mark.parametrize("make", [stored, made])
@pytest.mark.parametrize(("dtype", "least"), TYPES)
def test_each_node_by_itself_gives_what_the_whole_gives(make: Any, dtype: Any, least: int) -> None:
    proto = make(dtype, least)
    seen = trace(proto, FEEDS).tensors
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # else it multiplies in INT8
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = [session.run(["y"], feed)[0] for feed in FEEDS]
    (y,) = (tensor for tensor in seen if tensor.name == "y")
    assert (y.min, y.max) == pytest.approx((min(map(np.min, found)), max(map(np.max, found))), rel=1e-5)
