"""Writes ONNX graphs with the names that a PyTorch exporter would give: unique nodes, `_output_0` tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str]


class GraphWriter:
    """Collects nodes, initializers, inputs and outputs of one graph; node and tensor names never repeat."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._taken: set[str] = set()

    def input(self, name: str, shape: Shape, elem_type: int = TensorProto.FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, elem_type, list(shape)))
        return name

    def output(self, tensor: str, name: str, shape: Shape, elem_type: int = TensorProto.FLOAT) -> None:
        """Makes `tensor` a graph output called `name`, by renaming the tensor rather than by another node."""
        for node in self._nodes:
            _rename(node.input, tensor, name)
            _rename(node.output, tensor, name)
        self._outputs.append(helper.make_tensor_value_info(name, elem_type, list(shape)))

    def weight(self, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        self._initializers.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def op(self, op_type: str, inputs: Sequence[str], scope: str, **attributes: Any) -> str:
        """Adds a node with one output and returns the name of that output."""
        return self.ops(op_type, inputs, scope, 1, **attributes)[0]

    def ops(self, op_type: str, inputs: Sequence[str], scope: str, outputs: int, **attributes: Any) -> list[str]:
        name = self._unique(f"{scope}/{op_type}")
        tensors = [f"{name}_output_{index}" for index in range(outputs)]
        self._nodes.append(helper.make_node(op_type, list(inputs), tensors, name=name, **attributes))
        return tensors

    def graph(self) -> onnx.GraphProto:
        return helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._initializers)

    def model(self, opset: int = 17, functions: Sequence[onnx.FunctionProto] = ()) -> onnx.ModelProto:
        domains = [helper.make_opsetid("", opset)] + [
            helper.make_opsetid(domain, 1) for domain in sorted({function.domain for function in functions})
        ]
        return helper.make_model(
            self.graph(), opset_imports=domains, functions=list(functions), ir_version=8, producer_name="halfwise.zoo"
        )

    def _unique(self, name: str) -> str:
        candidate, count = name, 0
        while candidate in self._taken:
            count += 1
            candidate = f"{name}_{count}"
        self._taken.add(candidate)
        return candidate


def _rename(names: Any, old: str, new: str) -> None:
    for index, name in enumerate(names):
        if name == old:
            names[index] = new
