"""HW408: what depends on constants alone is computed once in FP32; what a difference cancels is not added before.

Precondition. (1) A float tensor that only constants and known shapes lead to: tables of sines, grids, anchors, scaled
or reshaped weights. (2) A difference of sums in which a term much larger than the result cancels, or constants combine:
(u + v) - (u - w), (x + 4000) - 3990.

Proof. (1) The same runtime computes the same nodes, once instead of in every run; FP16 then rounds the result and no
step on the way. (2) Addition is associative: (u + v) - (u - w) = v + w. In FP32 the shorter sum differs by the rounding
of the large term that it no longer holds, which the bound names.

What it buys. Phases, exponents and coordinates beyond 2048 keep their bits, at no cost at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.emulation.ort import RUNTIME_IR_VERSION, Session
from halfwise.model.model import Model
from halfwise.model.moving import only_moves
from halfwise.model.ops import CONTROL_FLOW
from halfwise.model.patterns.view import View, attribute
from halfwise.repair.graph_edit import GraphEdit, node_named, view_of, whole
from halfwise.repair.place import value_named
from halfwise.repair.recentre import Recentred, recentred, write_recentred
from halfwise.repair.rule import Ranges, Repair

__all__ = ["FOLD_CONSTANTS", "FoldConstants"]

_LARGEST = 1 << 22  # elements of a tensor that may be stored instead of computed
_UNSTEADY = frozenset(
    """RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli Dropout QuantizeLinear
    DequantizeLinear DynamicQuantizeLinear SequenceConstruct SequenceEmpty SequenceAt SplitToSequence
    ConcatFromSequence Optional""".split()
)

_Steady = dict[ir.Node, int]  # and their places in the order of execution


class FoldConstants:
    """Constants folded in FP32, and sums without what they cancel."""

    id = "HW408"
    name = "fold-constants"
    bound = 1e-3
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        steady = _steady(model.ir)
        found = []
        for value in _ends(steady):
            region = _region(value, steady)
            if any(not only_moves(node) and _is_float(node.outputs[0]) for node in region):
                says = f"{value.name} depends on constants alone: computed once in FP32"
                names = tuple(node.name or "" for node in region)
                found.append(Repair(self.id, names, says, {"kind": "fold", "value": value.name}))
        view, covered = View(model), set[str]()
        for node in reversed(model.nodes):
            shorter = recentred(view, node, ranges) if node.name not in covered else None
            if shorter is not None:
                covered.update(shorter.names)  # the longest sums first: they hold the shorter ones
                told = {"kind": "recentre", "gone": [value.name for value in shorter.gone]}
                found.append(Repair(self.id, (*shorter.names, node.name or ""), shorter.says, told))
        return tuple(found)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        node = node_named(model, repair.nodes[-1])
        if node is None:
            return False
        if repair.parameters["kind"] == "recentre":
            shorter: Recentred | None = recentred(view_of(model), node, Ranges())
            if shorter is None or [value.name for value in shorter.gone] != repair.parameters["gone"]:
                return False
            edit = GraphEdit(model, node, "recentred")
            edit.replace(node.outputs[0], write_recentred(edit, shorter))
            return True
        value = value_named([node], repair.parameters["value"])
        steady = _steady(model)
        if value is None or value.producer() not in steady:
            return False
        array = _computed(model, value, _region(value, steady))
        if array is None:
            return False
        edit = GraphEdit(model, node, "folded")
        ir.convenience.replace_all_uses_with(value, edit.constant(array, array.dtype))
        return True


FOLD_CONSTANTS = FoldConstants()


def _is_float(value: ir.Value) -> bool:
    return value.dtype is ir.DataType.FLOAT


def _steady(model: ir.Model) -> _Steady:
    """The nodes whose results are the same in every run, and in every turn of a loop."""
    found: _Steady = {}
    for index, node in enumerate(model.graph.all_nodes()):
        if node.domain or node.op_type in _UNSTEADY or node.op_type in CONTROL_FLOW:
            continue
        if any(output.type is None or not isinstance(output.type, ir.TensorType) for output in node.outputs):
            continue
        if _knows_shape(node) or (node.inputs and all(_is_steady(value, found) for value in node.inputs)):
            found[node] = index
    return found


def _is_steady(value: ir.Value | None, found: _Steady) -> bool:
    return value is None or value.is_initializer() or value.producer() in found


def _knows_shape(node: ir.Node) -> bool:
    """Whether it is a Shape whose answer needs no run: every dimension is a number."""
    value = node.inputs[0] if node.op_type == "Shape" and not node.domain else None
    return value is not None and value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def _size(value: ir.Value) -> int:
    """How many elements there are at least."""
    return math.prod(dim for dim in value.shape or () if isinstance(dim, int))


def _ends(steady: _Steady) -> list[ir.Value]:
    """The float tensors made of constants that something else reads, small enough to store."""
    found = []
    for node in steady:
        for value in node.outputs:
            read = any(reader not in steady for reader, _ in value.uses())
            if read and _is_float(value) and not value.is_graph_output() and _size(value) <= _LARGEST:
                found.append(value)
    return found


def _region(value: ir.Value, steady: _Steady) -> list[ir.Node]:
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


def _computed(model: ir.Model, value: ir.Value, region: list[ir.Node]) -> NDArray[Any] | None:
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
    return array if array.size <= _LARGEST else None


def _dims(node: ir.Node) -> NDArray[Any]:
    value = node.inputs[0]
    assert value is not None
    dims = [dim for dim in value.shape or () if isinstance(dim, int)]
    end = attribute(node, "end", None)
    return np.array(dims[attribute(node, "start", 0) : len(dims) if end is None else end], np.int64)
