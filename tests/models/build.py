"""Small models for tests, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None]


def value(name: str, element_type: int = TensorProto.FLOAT, shape: Shape | None = (4,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, shape)


def weight(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Inputs and outputs by their names, a space between; `-` for one left out. The node is called by its output."""
    read, written = ([part.replace("-", "") for part in text.split()] for text in (inputs, outputs))
    name = attributes.pop("name", f"n_{written[0]}")
    return helper.make_node(op, read, written, name=name, **attributes)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
    name: str = "g",
) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(weights))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    ir_version: int = 8,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    whole = graph(nodes, inputs, outputs, weights)
    return helper.make_model(whole, opset_imports=imports, ir_version=ir_version)


def f32(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)
