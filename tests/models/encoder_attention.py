"""One attention as an encoder has it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["encoder_attention"]


def encoder_attention(mask: bool = False, outputs: int = 1) -> onnx.ModelProto:
    """One attention as an encoder has it: three projections, scale, perhaps a mask, softmax, and the values."""
    rng = np.random.default_rng(3)
    weights = [numpy_helper.from_array(np.array([1, 64, 4, 16]), "heads")]
    nodes = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.1, (64, 64)).astype(np.float32), f"w{name}"))
        weights.append(numpy_helper.from_array(rng.normal(0, 0.1, 64).astype(np.float32), f"b{name}"))
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"], f"{name}/MatMul"),
            helper.make_node("Add", [f"{name}0", f"b{name}"], [f"{name}1"], f"{name}/Add"),
            helper.make_node("Reshape", [f"{name}1", "heads"], [f"{name}2"], f"{name}/Reshape"),
            helper.make_node("Transpose", [f"{name}2"], [name], f"{name}/Transpose", perm=perm),
        ]
    weights.append(numpy_helper.from_array(np.array(0.25, np.float32), "scale"))
    nodes.append(helper.make_node("MatMul", ["q", "k"], ["scores"], "qk"))
    nodes.append(helper.make_node("Mul", ["scores", "scale"], ["scaled"], "scale"))
    if mask:
        weights.append(numpy_helper.from_array(np.triu(np.full((64, 64), -100, np.float32), 1), "mask"))
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["masked"], "mask"))
    nodes.append(helper.make_node("Softmax", ["masked" if mask else "scaled"], ["weights"], "softmax", axis=-1))
    nodes.append(helper.make_node("MatMul", ["weights", "v"], ["y"], "av"))
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 64, 16])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
