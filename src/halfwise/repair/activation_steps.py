"""HW413: an activation that reads what overflows is written as its input times a gate.

Precondition. A Gelu, HardSwish, Mish or Swish, of ONNX's or ONNX Runtime's own, whose input came near FP16's limit.

Proof. By their definitions they are x * g(x) with a gate g between 0 and 1: (1 + erf(x / sqrt(2))) / 2, or the same
with tanh(sqrt(2 / pi) (x + 0.044715 x^3)), HardSigmoid(x), tanh(softplus(x)), Sigmoid(a x). Kernels that compute them
in other steps round otherwise, by about 1e-7 of x.

What it buys. No power of two passes the operator, but the product: HW401 scales x there, and restores it for the gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from halfwise.model.contrib.schemas import DOMAIN
from halfwise.model.model import Model
from halfwise.model.patterns.view import attribute
from halfwise.repair.graph_edit import GraphEdit, node_named
from halfwise.repair.rule import Ranges, Repair

__all__ = ["ACTIVATION_STEPS", "ActivationSteps"]

_LOUD = 2.0**15
_Gate = Callable[[GraphEdit, ir.Node, ir.Value], ir.Value]


class ActivationSteps:
    """Activations as products with a gate."""

    id = "HW413"
    name = "activation-steps"
    bound = 1e-3
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        loud = [node for node in model.graph if _is_known(node) and _high(node, ranges) > _LOUD]
        return tuple(Repair.equation(self.id, (node.name or "",), (f"{node.op_type}(x)", "x g(x)")) for node in loud)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        node = node_named(model, repair.nodes[0])
        if node is None or not _is_known(node) or node.inputs[0] is None:
            return False
        edit, x = GraphEdit(model, node, "stepped"), node.inputs[0]
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            x = edit.op("Add", [x, node.inputs[1]])
            x.shape = node.outputs[0].shape
        gate = _GATES[node.domain, node.op_type](edit, node, x)
        edit.replace(node.outputs[0], edit.op("Mul", [x, gate]))
        return True


ACTIVATION_STEPS = ActivationSteps()


def _is_known(node: ir.Node) -> bool:
    return (node.domain, node.op_type) in _GATES and node.outputs[0].dtype is ir.DataType.FLOAT


def _high(node: ir.Node, ranges: Ranges) -> float:
    return max(ranges.high.get(value.name or "", 0.0) for value in node.inputs if value is not None)


def _by_erf(edit: GraphEdit, node: ir.Node, x: ir.Value) -> ir.Value:
    return _half(edit, edit.op("Erf", [edit.op("Mul", [x, edit.constant(math.sqrt(0.5))])]))


def _by_tanh(edit: GraphEdit, node: ir.Node, x: ir.Value) -> ir.Value:
    square = edit.op("Mul", [edit.op("Mul", [x, x]), edit.constant(0.044715)])
    inner = edit.op("Mul", [x, edit.op("Add", [square, edit.constant(1.0)])])
    return _half(edit, edit.op("Tanh", [edit.op("Mul", [inner, edit.constant(math.sqrt(2.0 / math.pi))])]))


def _half(edit: GraphEdit, bent: ir.Value) -> ir.Value:
    return edit.op("Mul", [edit.op("Add", [bent, edit.constant(1.0)]), edit.constant(0.5)])


def _gelu(edit: GraphEdit, node: ir.Node, x: ir.Value) -> ir.Value:
    return (_by_tanh if attribute(node, "approximate", "none") == "tanh" else _by_erf)(edit, node, x)


def _hard_swish(edit: GraphEdit, node: ir.Node, x: ir.Value) -> ir.Value:
    return edit.op("HardSigmoid", [x], {"alpha": 1.0 / 6.0, "beta": 0.5})


def _mish(edit: GraphEdit, node: ir.Node, x: ir.Value) -> ir.Value:
    return edit.op("Tanh", [edit.op("Softplus", [x])])


def _swish(edit: GraphEdit, node: ir.Node, x: ir.Value) -> ir.Value:
    alpha = float(attribute(node, "alpha", 1.702 if node.domain else 1.0))
    return edit.op("Sigmoid", [x if alpha == 1.0 else edit.op("Mul", [x, edit.constant(alpha)])])


_GATES: dict[tuple[str, str], _Gate] = {
    ("", "Gelu"): _gelu,
    ("", "HardSwish"): _hard_swish,
    ("", "Mish"): _mish,
    ("", "Swish"): _swish,
    (DOMAIN, "Gelu"): _by_erf,
    (DOMAIN, "BiasGelu"): _by_erf,
    (DOMAIN, "FastGelu"): _by_tanh,
    (DOMAIN, "QuickGelu"): _swish,
}
