"""HW404: guards that FP16 rounds away are moved to where they survive.

Precondition. (1) log(x + epsilon) or log(max(x, epsilon)) of an x that cannot be negative, epsilon below 2^-16.
(2) L2 normalisation, x / max(|x|, epsilon), x / (|x| + epsilon), x / sqrt(sum(x^2) + epsilon), whose epsilon is that
small or whose squares leave FP16. (3) Any other division by such a guarded number or by its root: see
`guarded_division`.

Proof. (1) The logarithm of a sum is that of its parts: with a = log(x) and b = log(epsilon), log(x + epsilon) =
max(a, b) + softplus(min(a, b) - max(a, b)) where softplus(d) = log(1 + exp(d)), and log(max(x, epsilon)) = max(a, b).
log(0) is minus infinity and drops out. a is taken as HW407 takes it: without x where x is a softmax, a sigmoid, an
exponential or a square. The bound is the original's own rounding: of an x near 1, and of a runtime's small sigmoids.
(2) A norm does not change when x and epsilon are scaled together: with c = max(max|x|, t), u = x / c, x / max(|x|, e)
= u / max(|u|, e / c), and sqrt(sum(x^2) + e) = c sqrt(sum(u^2) + e / c^2). No square of u exceeds 1. t > 0 is chosen so
that e / t (or e / t^2) is an FP16 number: where x is all zero the guard still is there, and 0 / guard = 0.

What it buys. No 0 / 0 in padding and no log(0) in silence, without an FP32 node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.l2norm import find_l2norms
from halfwise.model.patterns.norms import find_norms
from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.roots import clip_bounds
from halfwise.model.patterns.view import View, attribute
from halfwise.repair.graph_edit import GraphEdit, node_named, view_of
from halfwise.repair.guarded_division import guarded_division, guarded_divisions, write_division
from halfwise.repair.log_forms import LogForm, is_resolved, log_form, never_negative, write_log
from halfwise.repair.place import value_named
from halfwise.repair.rule import Ranges, Repair

__all__ = ["EPSILONS", "Epsilons"]

_FIRST_OPSET = 8
_LOST = 2.0**-16  # an epsilon below loses bits that matter, or all
_SMALLEST = 2.0**-24
_NORMAL = 2.0**-14
_LOUD = 2.0**14


class Epsilons:
    """Guards that survive in FP16."""

    id = "HW404"
    name = "epsilons"
    bound = 1e-3
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        if model.opset() < _FIRST_OPSET:
            return ()
        view = View(model)
        found = []
        for node in model.nodes:
            guarded = _guarded_log(view, node)
            if guarded is not None and is_resolved(node, ranges):
                nodes = [*guarded.form.nodes, guarded.guard, node]
                names = tuple(each.name or "" for each in nodes)
                found.append(Repair.equation(self.id, names, guarded.equation, {"kind": "log"}))
        for pattern in find_l2norms(view):
            norm = _norm(view, pattern)
            if norm is not None and _needed(model, norm, pattern, ranges):
                told = {"kind": "norm", "output": pattern.details["output"]}
                found.append(Repair.equation(self.id, pattern.nodes, norm.equation, told))
        taken = {name for repair in found for name in repair.nodes}
        taken |= {name for pattern in find_norms(view) for name in pattern.nodes}
        for division in guarded_divisions(view, taken):
            names = tuple(each.name or "" for each in division.nodes)
            found.append(Repair.equation(self.id, names, division.equation, {"kind": "division"}))
        return tuple(found)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        view = view_of(model)
        opset = model.opset_imports.get("", 1)
        if repair.parameters["kind"] == "log":
            node = node_named(model, repair.nodes[-1])
            guarded = _guarded_log(view, node) if node is not None else None
            if node is None or guarded is None:
                return False
            edit = GraphEdit(model, node, "guarded")
            edit.replace(node.outputs[0], _write_log(edit, opset, guarded))
            return True
        if repair.parameters["kind"] == "division":
            node = node_named(model, repair.nodes[-1])
            division = guarded_division(view, node) if node is not None else None
            if node is None or division is None or tuple(each.name for each in division.nodes) != repair.nodes:
                return False
            edit = GraphEdit(model, node, "guarded")
            edit.replace(node.outputs[0], write_division(edit, division))
            return True
        output = repair.parameters["output"]
        for pattern in find_l2norms(view):
            norm = _norm(view, pattern) if pattern.details["output"] == output else None
            if norm is not None:
                edit = GraphEdit(model, norm.last, "guarded")
                edit.replace(norm.last.outputs[0], _write_norm(edit, opset, norm))
                return True
        return False


EPSILONS = Epsilons()


# -- logarithms -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _GuardedLog:
    form: LogForm
    guard: ir.Node
    epsilon: float
    high: float | None  # an upper bound that came with the guard

    @property
    def equation(self) -> tuple[str, str]:
        if self.guard.op_type == "Add":
            a, b = "a = log(x)", f"b = log({self.epsilon:g})"
            return f"log(x + {self.epsilon:g})", f"max(a, b) + softplus(min(a, b) - max(a, b)), {a}, {b}"
        return f"log(max(x, {self.epsilon:g}))", f"max(log(x), log({self.epsilon:g}))"


def _guarded_log(view: View, node: ir.Node) -> _GuardedLog | None:
    if node.op_type != "Log" or node.domain or node.outputs[0].dtype is not ir.DataType.FLOAT:
        return None
    guard = view.maker(node.inputs[0], "Add", "Max", "Clip")
    if guard is None:
        return None
    high: float | None = None
    if guard.op_type == "Clip":
        low, high = clip_bounds(view, guard)
        if low is None or any(each is not None and view.scalar(each) is None for each in guard.inputs[1:]):
            return None
        x, epsilon = guard.inputs[0], low
    else:
        found = view.with_number(guard)
        if found is None:
            return None
        x, epsilon = found
    if x is None or not 0.0 < epsilon < _LOST or (high is not None and high <= epsilon):
        return None
    form = log_form(view, x)  # where that is no plain logarithm, its operand is never negative
    return _GuardedLog(form, guard, epsilon, high) if form.kind != "plain" or never_negative(view, x) else None


def _write_log(edit: GraphEdit, opset: int, guarded: _GuardedLog) -> ir.Value:
    a, b = write_log(edit, opset, guarded.form), edit.constant(math.log(guarded.epsilon))
    larger = edit.op("Max", [a, b])
    if guarded.guard.op_type != "Add":
        high = guarded.high
        return larger if high is None else edit.op("Min", [larger, edit.constant(math.log(high))])
    behind = edit.op("Sub", [edit.op("Min", [a, b]), larger])
    return edit.op("Add", [larger, edit.op("Softplus", [behind])])


# -- L2 normalisation -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Norm:
    x: ir.Value
    last: ir.Node
    axes: tuple[int, ...]
    epsilon: float
    by: str  # "Add" or "Max"
    on_square: bool

    @property
    def equation(self) -> tuple[str, str]:
        guard = f"{self.epsilon:g} / c^2" if self.on_square else f"{self.epsilon:g} / c"
        return "x / |x|", f"u / |u|, u = x / c, c = max|x|, guarded by {guard}"


def _norm(view: View, pattern: Pattern) -> _Norm | None:
    """The norm that a pattern tells of, where it is guarded once and nothing else is mixed in."""
    told = pattern.details
    names = set(pattern.nodes)
    nodes = [node for node in view.model.nodes if node.name in names]
    if len({node.graph for node in nodes}) != 1 or not told["axes"] or told["guard"] == "none":
        return None
    guards = [node for node in nodes if node.op_type in ("Add", "Max", "Clip")]
    last = next((node for node in nodes if node.outputs[0].name == told["output"]), None)
    x = value_named(nodes, told["input"])
    if (
        len(guards) != 1
        or last is None
        or x is None
        or x.dtype is not ir.DataType.FLOAT
        or not 0.0 < told["epsilon"] < 1.0
    ):
        return None
    if guards[0].op_type == "Clip" and clip_bounds(view, guards[0])[1] is not None:
        return None
    scaled = [n for n in nodes if n.op_type == "Mul" and any(view.weight(value) is not None for value in n.inputs)]
    reductions = [node for node in nodes if node.op_type.startswith("Reduce")]
    kept = all(attribute(node, "keepdims", 1) for node in reductions)
    if scaled or len(reductions) != 1 or reductions[0].op_type == "ReduceMean" or not kept:
        return None
    by = "Add" if guards[0].op_type == "Add" else "Max"
    return _Norm(x, last, tuple(told["axes"]), float(told["epsilon"]), by, told["guard"] == "square")


def _needed(model: Model, norm: _Norm, pattern: Pattern, ranges: Ranges) -> bool:
    """Whether FP16 loses the guard, or the squares; and whether another place for the guard keeps it."""
    if _floor(norm) is None:
        return False
    if norm.epsilon < _LOST:
        return True
    square = model.node_by_name[pattern.anchor].outputs[0]
    return not pattern.details["whole"] and ranges.high.get(square.name or "", 0.0) > _LOUD


def _floor(norm: _Norm) -> float | None:
    """The power of two below which c does not fall; None where no such number keeps the guard."""
    wanted = math.sqrt(norm.epsilon) if norm.on_square else norm.epsilon / _NORMAL
    floor = max(2.0 ** math.floor(math.log2(wanted)), _SMALLEST)
    left = norm.epsilon / floor**2 if norm.on_square else norm.epsilon / floor
    return floor if left >= _SMALLEST else None


def _write_norm(edit: GraphEdit, opset: int, norm: _Norm) -> ir.Value:
    floor = _floor(norm)
    assert floor is not None
    largest = _reduce(edit, opset, "ReduceMax", edit.op("Abs", [norm.x]), norm.axes)
    c = edit.op("Max", [largest, edit.constant(floor)])
    u = edit.op("Div", [norm.x, c])
    if norm.on_square:
        root = edit.constant(math.sqrt(norm.epsilon))
        guard = edit.op("Div", [root, c])
        total = _reduce(edit, opset, "ReduceSum", edit.op("Mul", [u, u]), norm.axes)
        length = edit.op("Sqrt", [edit.op(norm.by, [total, edit.op("Mul", [guard, guard])])])
    else:
        share = edit.op("Div", [edit.constant(floor), c])  # both are FP16 numbers, and so is what is left of epsilon
        guard = edit.op("Mul", [edit.constant(norm.epsilon / floor), share])
        length = edit.op(norm.by, [_reduce(edit, opset, "ReduceL2", u, norm.axes), guard])
    return edit.op("Div", [u, length])


def _reduce(edit: GraphEdit, opset: int, op: str, x: ir.Value, axes: tuple[int, ...]) -> ir.Value:
    if opset >= (13 if op == "ReduceSum" else 18):
        return edit.op(op, [x, edit.axes(axes)], {"keepdims": 1})
    return edit.op(op, [x], {"axes": list(axes), "keepdims": 1})
