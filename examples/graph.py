"""Writes the small models of the examples: nodes named after the modules they come from, weights beside them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Graph"]


class Graph:
    """A graph in the making; `op` and `weight` give back the name of the tensor that they make."""

    def __init__(self, **inputs: Sequence[int]) -> None:
        self.inputs = {name: list(shape) for name, shape in inputs.items()}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, op: str, name: str, *reads: str, **attributes: Any) -> str:
        made = f"{name}_output_0"
        self.nodes.append(helper.make_node(op, list(reads), [made], name=name, **attributes))
        return made

    def weight(self, name: str, values: ArrayLike, dtype: type = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def linear(self, name: str, source: str, weight: ArrayLike, bias: ArrayLike) -> str:
        product = self.op("MatMul", f"{name}/MatMul", source, self.weight(f"{name[1:]}.weight", weight))
        return self.op("Add", f"{name}/Add", product, self.weight(f"{name[1:]}.bias", bias))

    def layer_norm(self, name: str, source: str, scale: ArrayLike, shift: ArrayLike) -> str:
        """In the nine nodes that exporters write below opset 17."""
        mean = self.op("ReduceMean", f"{name}/ReduceMean", source, axes=[-1])
        centred = self.op("Sub", f"{name}/Sub", source, mean)
        squared = self.op("Pow", f"{name}/Pow", centred, self.weight(f"{name[1:]}.two", 2.0))
        variance = self.op("ReduceMean", f"{name}/ReduceMean_1", squared, axes=[-1])
        guarded = self.op("Add", f"{name}/Add", variance, self.weight(f"{name[1:]}.eps", 1e-5))
        scaled = self.op("Div", f"{name}/Div", centred, self.op("Sqrt", f"{name}/Sqrt", guarded))
        scaled = self.op("Mul", f"{name}/Mul", scaled, self.weight(f"{name[1:]}.weight", scale))
        return self.op("Add", f"{name}/Add_1", scaled, self.weight(f"{name[1:]}.bias", shift))

    def save(self, file: str, **outputs: tuple[str, Sequence[int]]) -> Path:
        """Write the model into a new folder; `outputs` says which tensor each output is, and its shape."""
        renamed = {tensor: name for name, (tensor, _) in outputs.items()}
        for node in self.nodes:
            node.input[:] = [renamed.get(tensor, tensor) for tensor in node.input]
            node.output[:] = [renamed.get(tensor, tensor) for tensor in node.output]
        made = helper.make_graph(
            self.nodes,
            Path(file).stem,
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in self.inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, (_, shape) in outputs.items()],
            self.weights,
        )
        path = Path(tempfile.mkdtemp(prefix="halfwise-example-")) / file
        onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 16)], ir_version=8), path)
        return path
