"""HW405: sums and products that overflow are taken of what was scaled down before, and scaled back where it fits.

Precondition. A ReduceSum, ReduceL1, ReduceL2, ReduceSumSquare, CumSum, a square (Pow), or a product of two activations
(MatMul, Mul: Gram matrices, energies) whose result came near FP16's limit although what it reads did not, and behind
it something that takes a power of two: a constant factor or divisor, a linear operator, a norm, or a square root.
Squares inside a norm or an L2 normalisation are left to the rules for those.

Proof. sum(2^-k x) = 2^-k sum(x), (2^-k x)^2 = 4^-k x^2 and (2^-k a) b = 2^-k (a b), to the bit as long as all are
normal FP32 numbers; the rest is HW401's: sum(x) / n = sum(2^-k x) / (2^-k n), and sqrt(4^-k v) = 2^-k sqrt(v).

What it buys. The sum stays below 65504, so that neither it nor its division needs FP32; the new factor is a pointwise
step that a compiler fuses into the reduction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns import find_patterns
from halfwise.model.patterns.view import View
from halfwise.repair.rescale import scale, scalings
from halfwise.repair.rule import Ranges, Repair
from halfwise.repair.scale_ends import plain_flow
from halfwise.repair.scale_flow import ScaleFlow

__all__ = ["REDUCTIONS", "Reductions"]

_SUMS = frozenset({"ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "CumSum", "MatMul", "Mul", "Pow"})
_LOUD = 2.0**15
_NORMS = frozenset({"layernorm", "rmsnorm", "instancenorm", "groupnorm", "l2norm", "variance-by-moments"})


class Reductions:
    """Sums and products of activations scaled before they overflow."""

    id = "HW405"
    name = "reductions"
    bound = 0.0
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        view = View(model)
        loud = [node for node in model.graph if _is_loud(view, node, ranges)]
        if not loud:
            return ()
        flow = plain_flow(model, ranges)
        stuck = [
            node for node in loud if node.outputs[0] not in flow.layouts or flow.pinned(flow.layouts[node.outputs[0]])
        ]
        norms = {name for each in find_patterns(model) if each.kind in _NORMS for name in each.nodes}
        fronts = {node.name or "" for node in stuck} - norms
        if not fronts:
            return ()
        found = scalings(self.id, ScaleFlow(model, ranges, fronts))
        return tuple(repair for repair in found if repair.parameters["fronts"])

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        return scale(model, repair)


REDUCTIONS = Reductions()


def _is_loud(view: View, node: ir.Node, ranges: Ranges) -> bool:
    """Whether a sum of what FP16 can hold came out too large."""
    if node.domain or node.op_type not in _SUMS or node.outputs[0].dtype is not ir.DataType.FLOAT:
        return False
    if node.op_type == "Pow" and not (len(node.inputs) == 2 and view.is_scalar(node.inputs[1], 2.0)):
        return False
    read = node.inputs[:1] if node.op_type == "Pow" else node.inputs
    operands = [value for value in read if value is not None and value.dtype is ir.DataType.FLOAT]
    if not operands or any(value.is_initializer() for value in operands):
        return False
    highs = [ranges.high.get(value.name or "", np.inf) for value in operands]
    return max(highs) <= _LOUD < ranges.high.get(node.outputs[0].name or "", 0.0)
