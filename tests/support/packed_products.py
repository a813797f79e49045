"""A product with packed weights that count as large, and what ONNX Runtime's own kernels make of such models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["K", "N", "kernel", "product"]

Array = NDArray[Any]
N, K = 544, 512  # just over a megabyte


def product(
    bits: int = 4, block: int = 32, zeros: str = "", *, bias: bool = False, columns: int = K, order: bool = False
) -> onnx.ModelProto:
    """Rows by a packed weight, and the sigmoid of the result."""
    rng = np.random.default_rng(bits + block)
    blocks = -(-columns // block)
    held: dict[str, Array] = {
        "b": rng.integers(0, 256, (N, blocks, block * bits // 8), dtype=np.uint8),
        "s": rng.normal(0.0, 0.01, N * blocks).astype(np.float32),
    }
    if zeros == "whole":
        held["z"] = rng.integers(0, 256, N * (-(-blocks * bits // 8)), dtype=np.uint8)
    elif zeros:
        held["z"] = rng.uniform(0, 1 << bits, N * blocks).astype(np.float32)
    if order:
        held["g"] = (np.arange(columns) // block).astype(np.int32)
    if bias:
        held["bias"] = rng.standard_normal(N).astype(np.float32)
    names = ["x", "b", "s", "z" if zeros else "", "g" if order else "", "bias" if bias else ""]
    while not names[-1]:
        names.pop()
    nodes = [
        helper.make_node(
            "MatMulNBits", names, ["p"], "product", domain="com.microsoft", N=N, K=columns, bits=bits, block_size=block
        ),
        helper.make_node("Sigmoid", ["p"], ["y"], "sigmoid"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", columns])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "rows", N])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def kernel(model: onnx.ModelProto, output: str, x: Array) -> Array:
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    asked.graph.output.append(onnx.ValueInfoProto(name=output))
    options = ort.SessionOptions()  # optimised, it multiplies in INT8
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(asked.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run([output], {"x": x})[0])
