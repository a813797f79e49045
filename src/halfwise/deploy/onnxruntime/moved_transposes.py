"""Where ONNX Runtime may have moved a Transpose to, before it fuses Transposes into products.

Its layout optimiser moves Transposes towards the outputs, past operators that treat all axes alike or name theirs, when
that leaves fewer: of a Concat of two transposed values a transposed Concat is made.
"""

from __future__ import annotations

import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.moving import Move, movers

__all__ = ["moves_the_first_axis", "turned_values"]

_OTHER_RANK = frozenset("Squeeze Unsqueeze ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2 ReduceProd ArgMax".split())
_ALIKE = """
Abs Add Ceil Clip Cos DequantizeLinear Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log LogSoftmax Max
Mean Min Mish Mod Mul Neg PRelu Pow QuantizeLinear Reciprocal Relu Round Selu Sigmoid Sign Sin Softmax Softplus Softsign
Sqrt Sub Sum Tan Tanh ThresholdedRelu
"""
_PASSED = (
    frozenset(_ALIKE.split())
    | _OTHER_RANK
    | (movers(Move.CUT | Move.REPEAT | Move.CAST) | frozenset({"Identity", "Concat", "Where", "Pad", "Dropout"}))
)


def turned_values(model: Model) -> frozenset[ir.Value]:
    """The values whose maker may end up as a Transpose that moves the first axis behind others."""
    moved: set[ir.Value] = set()  # some Transpose may come to stand there
    turned: set[ir.Value] = set()
    for node in model.nodes:
        if node.domain:
            continue
        after_one = any(value in moved for value in node.inputs)
        if node.op_type == "Transpose":
            moved.add(node.outputs[0])
            if after_one or moves_the_first_axis(node):
                turned.add(node.outputs[0])
        elif after_one and node.op_type in _PASSED:
            moved.update(node.outputs)
            if node.op_type in _OTHER_RANK or any(value in turned for value in node.inputs):
                turned.update(node.outputs)
    return frozenset(turned)


def moves_the_first_axis(node: ir.Node) -> bool:
    """Behind all others, or behind all but the last."""
    if node.op_type != "Transpose" or node.domain or "perm" not in node.attributes:
        return False
    order = tuple(node.attributes["perm"].as_ints())
    rest = tuple(range(1, len(order)))
    return len(order) > 2 and order in ((*rest, 0), (*rest[:-1], 0, rest[-1]))
