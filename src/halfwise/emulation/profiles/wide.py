"""The least rounding that a runtime may do: what one kernel can take over from another is not stored between them.

Weights are rounded, and so is what a product of matrices, a convolution, a recurrent layer, a subgraph or an unknown
operator reads. Sums, chains of pointwise operators, norms and attention scores stay wide, whoever reads them. ONNX
Runtime's CPU provider is close to it, because it computes in FP32 what it has no FP16 kernel for; so are fused
attention and fused norms on a GPU. A verdict that holds only where every step is rounded is a verdict on luck: -3.4e38
becomes -65504 as a weight, and whether a score survives beside it depends on who rounds the sum.
"""

from __future__ import annotations

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.model.bodies import graphs_in
from halfwise.model.ops import CONTROL_FLOW
from halfwise.precision.assignment import Assignment

__all__ = ["WIDE_RULE", "unstored"]

WIDE_RULE = "wide"

# What takes its operands from memory; so does what is in no standard domain, and what runs another graph.
_READS_STORED = CONTROL_FLOW | frozenset(
    """Attention Conv ConvInteger ConvTranspose DeformConv Einsum GRU Gemm LSTM MatMul MatMulInteger NonMaxSuppression
    QLinearConv QLinearMatMul RNN TopK""".split()
)
_STORES = CONTROL_FLOW | {"Cast", "Constant", "ConstantOfShape"}


def unstored(assignment: Assignment) -> frozenset[ir.Value]:
    """The tensors in a narrow format that no kernel has to store."""
    graph = assignment.sites.model.graph
    handed_out = {value for each in (graph, *graphs_in(graph)) for value in each.outputs}
    found = set[ir.Value]()
    for node in graph:
        if node.domain or node.op_type in _STORES:
            continue
        for value in node.outputs:
            fmt = assignment.stored(value) if value.name else None
            if fmt is None or fmt is Format.FP32 or value in handed_out:
                continue
            if all(user.graph is graph and _takes_wide(user) for user, _ in value.uses()):
                found.add(value)
    return frozenset(found)


def _takes_wide(node: ir.Node) -> bool:
    """A cast to floats passes on what it reads: who reads the cast decides, as where no cast is written."""
    if _widens(node):
        result = node.outputs[0]
        return not result.is_graph_output() and all(_takes_wide(user) for user, _ in result.uses())
    return not node.domain and node.op_type not in _READS_STORED


def _widens(node: ir.Node) -> bool:
    return not node.domain and node.op_type == "Cast" and node.attributes["to"].as_int() == ir.DataType.FLOAT
