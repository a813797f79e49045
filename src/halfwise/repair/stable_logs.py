"""HW407: a logarithm of what an exponential made is taken without either.

Precondition. log(softmax(z)), log(sigmoid(z)), log(1 - sigmoid(z)), log(1 + exp(z)), log(sum(exp(z))), log(exp(z)),
log(z^2); and the inverse of a sigmoid, log(x / (1 - x)) or log(x) - log(1 - x), of x = sigmoid(z), with any clips.

Proof. log(softmax(z)) = z - log(sum(exp(z))); log(sigmoid(z)) = -softplus(-z), 1 - sigmoid(z) = sigmoid(-z), so that
logit(sigmoid(z)) = z; the logarithm grows, so that log(min(max(x, a), b)) = min(max(log(x), log(a)), log(b)). Where
both logarithms of a logit stop at the same x, the difference is clip(z, logit(a), logit(b)); else both are clipped.
In FP32 the stable form differs by the original's own rounding: 1 - x near 0 is known to 2^-24 only, and runtimes know
sigmoids below 2^-12 to few digits; results that all stay below 2^-11 have hardly any, and are left alone. Where the
original overflows in FP32, the stable form does not.

What it buys. exp overflows from 11 on in FP16, a probability vanishes below 6e-8, 1 - x is known to 0.0005: none
of them is formed any more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.roots import clip_bounds
from halfwise.model.patterns.view import View
from halfwise.repair.graph_edit import GraphEdit, node_named, view_of
from halfwise.repair.log_forms import LogForm, is_resolved, log_form, write_log
from halfwise.repair.rule import Ranges, Repair

__all__ = ["STABLE_LOGS", "StableLogs"]

_FIRST_OPSET = 8  # Max and Min broadcast from here on
_ALIKE = 1e-3  # how near two bounds must be, relative to the smaller, to be one
_ALGEBRA = {
    "softmax": ("log(softmax(z))", "LogSoftmax(z)"),
    "sigmoid": ("log(sigmoid(z))", "-softplus(-z)"),
    "one-minus-sigmoid": ("log(1 - sigmoid(z))", "-softplus(z)"),
    "softplus": ("log(1 + exp(z))", "softplus(z)"),
    "exp": ("log(exp(z))", "z"),
    "square": ("log(z^2)", "2 log|z|"),
    "logsumexp": ("log(sum(exp(z)))", "ReduceLogSumExp(z)"),
}


@dataclass(frozen=True)
class StableLogs:
    """Logarithms of exponentials in their stable form; `unstable` are operators in which the target overflows."""

    id: str = "HW407"
    name: str = "stable-log"
    bound: float = 1e-3
    lossy: bool = False
    unstable: frozenset[str] = frozenset()

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        if model.opset() < _FIRST_OPSET:
            return ()
        view = View(model)
        found = []
        for node in model.nodes:
            logit = _logit(view, node)
            form = _log(view, node) if logit is None else None
            if not is_resolved(node, ranges):
                continue
            if logit is not None:
                found.append(_repair(logit.nodes, ("logit(sigmoid(z))", "z, and its clips become clips of z")))
            elif form is not None:
                found.append(self._of_log((*form.nodes, node), form))
        return tuple(found)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        node = node_named(model, repair.nodes[-1])
        if node is None:
            return False
        view = view_of(model)
        edit = GraphEdit(model, node, "stable")
        logit, form = _logit(view, node), _log(view, node)
        if logit is not None:
            result = _write_logit(edit, logit)
        elif form is not None:
            opset, apart = model.opset_imports.get("", 1), bool(repair.parameters.get("apart"))
            result = write_log(edit, opset, form, apart=apart)
        else:
            return False
        if result is (logit or form).source:  # type: ignore[union-attr]
            result = edit.op("Identity", [result])
        edit.replace(node.outputs[0], result)
        return True

    def _of_log(self, nodes: Sequence[ir.Node], form: LogForm) -> Repair:
        if form.kind == "logsumexp" and "ReduceLogSumExp" in self.unstable:
            return _repair(nodes, ("log(sum(exp(z)))", "m + log(sum(exp(z - m))), m = max(z)"), {"apart": True})
        return _repair(nodes, _ALGEBRA[form.kind])


STABLE_LOGS = StableLogs()


def _repair(nodes: Sequence[ir.Node], sides: tuple[str, str], parameters: Mapping[str, Any] | None = None) -> Repair:
    return Repair.equation("HW407", tuple(node.name or "" for node in nodes), sides, parameters)


def _log(view: View, node: ir.Node) -> LogForm | None:
    if node.op_type != "Log" or node.domain or node.inputs[0] is None or node.outputs[0].dtype is not ir.DataType.FLOAT:
        return None
    form = log_form(view, node.inputs[0])
    return form if form.kind != "plain" else None


@dataclass(frozen=True)
class _Kept:
    """A value kept between two bounds; infinite where a side is open."""

    value: ir.Value
    low: float
    high: float
    nodes: tuple[ir.Node, ...] = ()


@dataclass(frozen=True)
class _Logit:
    """log(x) - log(1 - x) of x = sigmoid(source); `x` and `rest` are what each is kept between."""

    source: ir.Value
    x: tuple[float, float]
    rest: tuple[float, float]
    nodes: tuple[ir.Node, ...]


def _logit(view: View, node: ir.Node) -> _Logit | None:
    if node.domain or node.op_type not in ("Log", "Sub") or node.outputs[0].dtype is not ir.DataType.FLOAT:
        return None
    if node.op_type == "Log":
        ratio = view.maker(node.inputs[0], "Div")
        if ratio is None:
            return None
        upper, lower, between = ratio.inputs[0], ratio.inputs[1], (ratio,)
    else:
        logs = [view.maker(value, "Log") for value in node.inputs[:2]]
        if logs[0] is None or logs[1] is None:
            return None
        upper, lower, between = logs[0].inputs[0], logs[1].inputs[0], (logs[0], logs[1])  # type: ignore[assignment]
    if upper is None or lower is None:
        return None
    x, rest = _kept(view, upper), _kept(view, lower)
    subtract = view.maker(rest.value, "Sub")
    if subtract is None or not view.is_scalar(subtract.inputs[0], 1.0) or subtract.inputs[1] is None:
        return None
    inner = _kept(view, subtract.inputs[1])
    gate = view.maker(x.value, "Sigmoid")
    if gate is None or gate.inputs[0] is None or not view.alike(x.value, inner.value):
        return None
    low, high = max(rest.low, 1.0 - inner.high), min(rest.high, 1.0 - inner.low)
    if not (x.low < x.high and low < high and x.high > 0 and high > 0):
        return None
    nodes = (gate, *x.nodes, *inner.nodes, subtract, *rest.nodes, *between, node)
    return _Logit(gate.inputs[0], (x.low, x.high), (low, high), tuple(dict.fromkeys(nodes)))


def _kept(view: View, value: ir.Value, steps: int = 4) -> _Kept:
    """Take Clip, Max and Min with numbers off a value."""
    value = view.origin(value) or value
    node = view.maker(value, "Clip", "Max", "Min", "Where")
    if node is None or steps == 0:
        return _Kept(value, -math.inf, math.inf)
    if node.op_type == "Where":
        chosen = _chosen(view, node)
        if chosen is None:
            return _Kept(value, -math.inf, math.inf)
        return _within(_kept(view, chosen.value, steps - 1), chosen.low, chosen.high, chosen.nodes)
    low, high = -math.inf, math.inf
    if node.op_type == "Clip":
        source = node.inputs[0]
        bounds = clip_bounds(view, node)
        given = sum(each is not None for each in node.inputs[1:])
        if given != sum(each is not None for each in bounds) and given:
            return _Kept(value, low, high)  # a bound that is not constant
        low = bounds[0] if bounds[0] is not None else low
        high = bounds[1] if bounds[1] is not None else high
    else:
        found = view.with_number(node)
        if found is None:
            return _Kept(value, low, high)
        source = found[0]
        low, high = (found[1], high) if node.op_type == "Max" else (low, found[1])
    if source is None:
        return _Kept(value, -math.inf, math.inf)
    return _within(_kept(view, source, steps - 1), low, high, (node,))


def _within(inner: _Kept, low: float, high: float, nodes: tuple[ir.Node, ...]) -> _Kept:
    """What is kept between bounds already, kept between further ones."""
    lower, upper = max(low, min(inner.low, high)), min(high, max(inner.high, low))
    return _Kept(inner.value, lower, upper, (*inner.nodes, *nodes))


def _chosen(view: View, node: ir.Node) -> _Kept | None:
    """A clip written as a choice: where(x < a, a, x), where(x > b, b, x), and the same turned around."""
    test = view.maker(node.inputs[0], "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    if test is None:
        return None
    x, bound, less = test.inputs[0], view.scalar(test.inputs[1]), test.op_type.startswith("Less")
    if bound is None:
        x, bound, less = test.inputs[1], view.scalar(test.inputs[0]), not less
    if x is None or bound is None:
        return None
    if_so, if_not = (view.origin(value) for value in node.inputs[1:3])
    turned = if_so is view.origin(x)
    other = if_not if turned else if_so
    if (not turned and if_not is not view.origin(x)) or other is None or view.scalar(other) != bound:
        return None
    keeps_above = less != turned
    return _Kept(x, bound if keeps_above else -math.inf, math.inf if keeps_above else bound, (test, node))


def _write_logit(edit: GraphEdit, logit: _Logit) -> ir.Value:
    z = logit.source
    (low, high), (rest_low, rest_high) = logit.x, logit.rest
    if _same_place(low, 1.0 - rest_high) and _same_place(1.0 - high, rest_low):
        result = z
        if low > 0:
            result = edit.op("Max", [result, edit.constant(math.log(low / (1.0 - low)))])
        if rest_low > 0:
            result = edit.op("Min", [result, edit.constant(math.log((1.0 - rest_low) / rest_low))])
        return result
    upper = edit.op("Neg", [edit.op("Softplus", [edit.op("Neg", [z])])])
    lower = edit.op("Neg", [edit.op("Softplus", [z])])
    return edit.op("Sub", [_clip(edit, upper, low, high), _clip(edit, lower, rest_low, rest_high)])


def _clip(edit: GraphEdit, value: ir.Value, low: float, high: float) -> ir.Value:
    """The logarithm of something below 1, kept between the logarithms of the bounds."""
    if low > 0:
        value = edit.op("Max", [value, edit.constant(math.log(low))])
    if high < 1:
        value = edit.op("Min", [value, edit.constant(math.log(high))])
    return value


def _same_place(one: float, other: float) -> bool:
    """Whether two bounds near 0 stop at the same value; none stops where they are not above 0."""
    if one <= 0 or other <= 0:
        return one <= 0 and other <= 0
    return abs(one - other) <= _ALIKE * min(one, other)
