"""The logarithm of what is never negative, taken without the value itself where the step that makes it is known.

log(softmax(z)) = LogSoftmax(z), log(sigmoid(z)) = -softplus(-z), log(1 - sigmoid(z)) = -softplus(z), log(exp(z)) = z,
log(z^2) = 2 log|z|, log(1 + exp(z)) = softplus(z), log(sum(exp(z))) = ReduceLogSumExp(z).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.model.moving import FROM_FIRST, Move, movers
from halfwise.model.patterns.view import View, attribute
from halfwise.repair.graph_edit import GraphEdit, whole
from halfwise.repair.rule import Ranges

__all__ = ["LogForm", "is_resolved", "log_form", "never_negative", "write_log"]

_POSITIVE = frozenset(
    "Softmax Sigmoid HardSigmoid Exp Relu Abs Softplus Sqrt ReduceL1 ReduceL2 ReduceSumSquare".split()
)
_KEEPS_SIGN = FROM_FIRST | frozenset(
    """Dropout ReduceSum ReduceMean ReduceMax ReduceMin MaxPool AveragePool GlobalAveragePool GlobalMaxPool
    CumSum""".split()
)
_SCATTERS = movers(Move.SCATTER)
_BOTH = frozenset({"Add", "Mul", "Div", "MatMul", "Concat", "Sum", "Max", "Min"})
_DEPTH = 8
_FAINT = 2.0**-11


@dataclass(frozen=True)
class LogForm:
    """How a logarithm is taken: `kind`, of which value, past which nodes; "plain" is the Log itself."""

    kind: str
    source: ir.Value
    nodes: tuple[ir.Node, ...] = ()
    axes: tuple[int, ...] = ()


def log_form(view: View, value: ir.Value) -> LogForm:
    """The best way to the logarithm of a value."""
    value = view.origin(value) or value
    node = view.maker(value, "Softmax", "Sigmoid", "Exp", "Mul", "Pow", "Sub", "Add", "ReduceSum")
    source = node.inputs[0] if node is not None else None
    if node is None or source is None:
        return LogForm("plain", value)
    if node.op_type in ("Softmax", "Sigmoid", "Exp"):
        return LogForm(node.op_type.lower(), source, (node,))
    if node.op_type == "Mul" and view.origin(node.inputs[1]) is view.origin(source):
        return LogForm("square", source, (node,))
    if node.op_type == "Pow" and view.is_scalar(node.inputs[1], 2.0):
        return LogForm("square", source, (node,))
    if node.op_type == "Sub" and view.is_scalar(source, 1.0):
        gate = view.maker(node.inputs[1], "Sigmoid")
        if gate is not None and gate.inputs[0] is not None:
            return LogForm("one-minus-sigmoid", gate.inputs[0], (gate, node))
    if node.op_type == "Add" and (found := view.with_number(node)) is not None and found[1] == 1.0:
        power = view.maker(found[0], "Exp")
        if power is not None and power.inputs[0] is not None:
            return LogForm("softplus", power.inputs[0], (power, node))
    if node.op_type == "ReduceSum":
        power = view.maker(source, "Exp")
        axes = view.axes(node)
        if power is not None and power.inputs[0] is not None and axes and not _shifted(view, power):
            return LogForm("logsumexp", power.inputs[0], (power, node), axes)
    return LogForm("plain", value)


def is_resolved(node: ir.Node, ranges: Ranges) -> bool:
    """Whether FP32 has digits of a logarithm at all: near log(1) it has those of its operand, 2^-24 of 1."""
    return ranges.high.get(node.outputs[0].name or "", math.inf) >= _FAINT


def write_log(edit: GraphEdit, opset: int, form: LogForm, *, apart: bool = False) -> ir.Value:
    """The logarithm in front of the anchor of `edit`; `apart`: that of a sum of exponentials in steps."""
    x = form.source
    if form.kind == "softmax":
        return edit.op("LogSoftmax", [x], _attributes(form.nodes[-1]))
    if form.kind == "sigmoid":
        return edit.op("Neg", [edit.op("Softplus", [edit.op("Neg", [x])])])
    if form.kind == "one-minus-sigmoid":
        return edit.op("Neg", [edit.op("Softplus", [x])])
    if form.kind == "softplus":
        return edit.op("Softplus", [x])
    if form.kind == "exp":
        return x
    if form.kind == "square":
        return edit.op("Mul", [edit.op("Log", [edit.op("Abs", [x])]), edit.constant(2.0)])
    if form.kind == "logsumexp" and apart:
        return _log_sum_exp(edit, opset, form)
    if form.kind == "logsumexp":
        kept = {"keepdims": attribute(form.nodes[-1], "keepdims", 1)}
        if opset < 18:
            return edit.op("ReduceLogSumExp", [x], {"axes": list(form.axes), **kept})
        return edit.op("ReduceLogSumExp", [x, edit.axes(form.axes)], kept)
    return edit.op("Log", [x])


def never_negative(view: View, value: ir.Value | None, depth: int = _DEPTH) -> bool:
    """Whether a value cannot be below zero, by how it is made."""
    value = view.origin(value)
    if value is None:
        return False
    array = whole(value)
    if array is not None:
        return array.dtype.kind == "f" and bool((array >= 0).all())
    node = value.producer()
    if node is None or node.domain or depth == 0:
        return False
    if node.op_type in _POSITIVE:
        return True
    if node.op_type == "Pow":
        power = view.scalar(node.inputs[1])
        return (power is not None and power % 2 == 0) or never_negative(view, node.inputs[0], depth - 1)
    if node.op_type == "Mul" and view.origin(node.inputs[0]) is view.origin(node.inputs[1]):
        return True
    if node.op_type == "Max":
        return any(never_negative(view, each, depth - 1) for each in node.inputs)
    if node.op_type == "Clip":
        low = attribute(node, "min", None)
        low = view.scalar(node.inputs[1]) if low is None and len(node.inputs) > 1 else low
        return (low is not None and low >= 0) or never_negative(view, node.inputs[0], depth - 1)
    if node.op_type == "ConstantOfShape":
        filler = attribute(node, "value", None)
        return filler is None or bool((filler.numpy() >= 0).all())
    if node.op_type in _SCATTERS:  # whatever its `reduction`
        return all(never_negative(view, node.inputs[slot], depth - 1) for slot in (0, 2))
    if node.op_type in _KEEPS_SIGN:
        return never_negative(view, node.inputs[0], depth - 1)
    return node.op_type in _BOTH and all(never_negative(view, each, depth - 1) for each in node.inputs)


def _log_sum_exp(edit: GraphEdit, opset: int, form: LogForm) -> ir.Value:
    """m + log(sum(exp(z - m))) with m = max(z), and finite where every z is minus infinity."""

    def reduced(op: str, value: ir.Value, since: int) -> ir.Value:
        if opset < since:
            return edit.op(op, [value], {"axes": list(form.axes), "keepdims": 1})
        return edit.op(op, [value, edit.axes(form.axes)], {"keepdims": 1})

    lowest = edit.constant(-Format.FP16.max)  # exp of any z below is 0, as it was
    largest = edit.op("Max", [reduced("ReduceMax", form.source, 18), lowest])
    powers = edit.op("Exp", [edit.op("Sub", [form.source, largest])])
    found = edit.op("Add", [edit.op("Log", [reduced("ReduceSum", powers, 13)]), largest])
    if attribute(form.nodes[-1], "keepdims", 1):
        return found
    if opset < 13:
        return edit.op("Squeeze", [found], {"axes": list(form.axes)})
    return edit.op("Squeeze", [found, edit.axes(form.axes)])


def _shifted(view: View, power: ir.Node) -> bool:
    """Whether the maximum is taken out already."""
    shift = view.maker(power.inputs[0], "Sub")
    return shift is not None and view.maker(shift.inputs[1], "ReduceMax") is not None


def _attributes(node: ir.Node) -> dict[str, Any]:
    return {name: each.value for name, each in node.attributes.items()}
