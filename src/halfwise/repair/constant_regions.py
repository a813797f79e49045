"""The part of a graph that constants and known shapes alone lead to, and what it comes to."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.emulation.ort import RUNTIME_IR_VERSION, Session
from halfwise.model.bodies import nodes_in
from halfwise.model.ops import CONTROL_FLOW
from halfwise.model.patterns.view import attribute
from halfwise.repair.graph_edit import whole

__all__ = ["LARGEST", "Steady", "computed", "region_of", "steady_nodes"]

LARGEST = 1 << 22  # elements of a tensor that may be stored instead of computed
_UNSTEADY = frozenset(
    """RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli Dropout QuantizeLinear
    DequantizeLinear DynamicQuantizeLinear SequenceConstruct SequenceEmpty SequenceAt SplitToSequence
    ConcatFromSequence Optional""".split()
)

Steady = dict[ir.Node, int]  # and their places in the order of execution


def steady_nodes(model: ir.Model) -> Steady:
    """The nodes whose results are the same in every run, and in every turn of a loop."""
    found: Steady = {}
    for index, node in enumerate(nodes_in(model.graph)):
        if node.domain or node.op_type in _UNSTEADY or node.op_type in CONTROL_FLOW:
            continue
        if any(output.name and not isinstance(output.type, ir.TensorType) for output in node.outputs):
            continue
        if _knows_shape(node) or (node.inputs and all(_is_steady(value, found) for value in node.inputs)):
            found[node] = index
    return found


def _is_steady(value: ir.Value | None, found: Steady) -> bool:
    return value is None or value.is_initializer() or value.producer() in found


def _knows_shape(node: ir.Node) -> bool:
    """Whether it is a Shape whose answer needs no run: every dimension is a number."""
    value = node.inputs[0] if node.op_type == "Shape" and not node.domain else None
    return value is not None and value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def region_of(value: ir.Value, steady: Steady) -> list[ir.Node]:
    """The nodes that lead to a value, in execution order; the Shape of a known shape ends the way."""
    found: set[ir.Node] = set()
    stack = [value.producer()]
    while stack:
        node = stack.pop()
        if node is None or node in found or node not in steady:
            continue
        found.add(node)
        if not _knows_shape(node):
            stack.extend(each.producer() for each in node.inputs if each is not None)
    return sorted(found, key=steady.__getitem__)


def computed(model: ir.Model, value: ir.Value, region: list[ir.Node]) -> NDArray[Any] | None:
    """Run the nodes of a region on their own."""
    graph = onnx.GraphProto(name="folded", output=[onnx.ValueInfoProto(name=value.name or "")])
    graph.output[0].CopyFrom(ir.serde.serialize_value(value))
    known: dict[str, NDArray[Any]] = {}
    for node in region:
        if _knows_shape(node):
            known[node.outputs[0].name or ""] = _dims(node)
            continue
        graph.node.append(ir.serde.serialize_node(node))
        for each in node.inputs:
            array = whole(each)
            if each is not None and array is not None:
                known[each.name or ""] = array
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in known.items())
    opsets = [onnx.helper.make_opsetid("", model.opset_imports.get("", 1))]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=RUNTIME_IR_VERSION)
    try:
        array = Session(proto).run({})[value.name or ""]
    except InputError:
        return None
    return array if array.size <= LARGEST else None


def _dims(node: ir.Node) -> NDArray[Any]:
    value = node.inputs[0]
    assert value is not None
    dims = [dim for dim in value.shape or () if isinstance(dim, int)]
    end = attribute(node, "end", None)
    return np.array(dims[attribute(node, "start", 0) : len(dims) if end is None else end], np.int64)
