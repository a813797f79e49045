"""Small models that are fixed for a target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.compiler import rtx
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult

__all__ = ["WIDTH", "big_square", "fixed", "model_of", "needs_rtx", "samples"]


needs_rtx = pytest.mark.skipif(not rtx.available(), reason="TensorRT-RTX is not installed")

WIDTH = 32


def model_of(nodes: list[onnx.NodeProto], *weights: onnx.TensorProto, rows: int | str = 8) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, WIDTH])],
        list(weights),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def big_square(rows: int | str = 8, names: bool = True) -> onnx.ModelProto:
    """Squares beyond 65504, brought back by a logarithm: both nodes at that tensor must stay in FP32."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["q"], "square"),
        helper.make_node("Add", ["q", "one"], ["r"], "guard"),
        helper.make_node("Log", ["r"], ["l"], "log"),
        helper.make_node("Relu", ["l"], ["y"], "relu"),
    ]
    if not names:
        for node in nodes:
            node.name = ""
    return model_of(nodes, numpy_helper.from_array(np.array(1, np.float32), "one"), rows=rows)


def samples(scale: float, rows: tuple[int, ...] = (8, 8, 8, 8)) -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    return [{"x": (scale * rng.standard_normal((n, WIDTH))).astype(np.float32)} for n in rows]


def fixed(folder: Path, model: onnx.ModelProto, target: str, scale: float = 600.0, **options: Any) -> FixResult:
    path = folder / "m.onnx"
    onnx.save(model, path)
    options.setdefault("repairs", ("none",))  # these tests are about what stays in FP32
    return fix(path, options.pop("inputs", samples(scale)), out=folder / "out", target=target, **options)
