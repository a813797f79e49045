"""Nodes and weights of one model, as they are made: the weights go to their file at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from benchmarks.zoo.weight_file import Array, WeightFile

__all__ = ["Graph"]


class Graph:
    """What every generator builds with."""

    def __init__(self, file: WeightFile) -> None:
        self.file = file
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.constants: dict[str, str] = {}

    def node(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        made = name or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [made], name=f"/{made}", **attributes))
        return made

    def integers(self, *values: int) -> str:
        return self._constant("_".join(["i", *map(str, values)]), np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self._constant(f"f_{value!r}", np.array(value, np.float32).astype(self.file.dtype))

    def _constant(self, name: str, array: Array) -> str:
        if name not in self.constants:
            proto = onnx.TensorProto(name=name, dims=array.shape, raw_data=array.tobytes())
            proto.data_type = self.file.type if array.dtype == self.file.dtype else onnx.TensorProto.INT64
            self.weights.append(proto)
            self.constants[name] = name
        return name

    def matrix(self, name: str, rows: int, columns: int, plant: Any = None, scale: float = 1.0) -> str:
        planting = {} if plant is None else {"plant": plant}
        self.weights.append(self.file.random(name, (rows, columns), scale * rows**-0.5, **planting))
        return name

    def vector(self, name: str, array: Array) -> str:
        self.weights.append(self.file.given(name, array))
        return name

    def linear(self, x: str, name: str, rows: int, columns: int, scale: float = 1.0) -> str:
        """A product and a bias."""
        made = self.node("MatMul", x, self.matrix(f"{name}.weight", rows, columns, scale=scale))
        return self.node("Add", made, self.vector(f"{name}.bias", np.zeros(columns, np.float32)))

    def split_heads(self, x: str, count: int, head: int) -> str:
        apart = self.node("Reshape", x, self.integers(0, 0, count, head))
        return self.node("Transpose", apart, perm=[0, 2, 1, 3])

    def attention(self, q: str, k: str, v: str, head: int, mask: str = "") -> str:
        """Of heads apart, to heads together."""
        turned = self.node("Transpose", k, perm=[0, 1, 3, 2])
        scores = self.node("Mul", self.node("MatMul", q, turned), self.number(head**-0.5))
        scores = self.node("Add", scores, mask) if mask else scores
        made = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        return self.node("Reshape", self.node("Transpose", made, perm=[0, 2, 1, 3]), self.integers(0, 0, -1))

    def save(self, path: Path, inputs: list[Any], outputs: list[Any], opset: int = 17) -> Path:
        made = helper.make_graph(self.nodes, path.stem, inputs, outputs, self.weights)
        own = {node.domain for node in self.nodes if node.domain}
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in own)]
        onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=10), path)
        return path
