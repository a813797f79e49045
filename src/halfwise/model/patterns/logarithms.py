"""Logarithms of what may be zero: log(x + epsilon), and the inverse of a sigmoid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.roots import clip_bounds, guarded
from halfwise.model.patterns.view import View

__all__ = ["find_inverse_sigmoids", "find_log_epsilons"]

_LARGEST_EPSILON = 2.0**-9  # log(x + 1) and its like are no guards


def find_log_epsilons(view: View) -> Iterator[Pattern]:
    """log(x + epsilon), log(max(x, epsilon)). Details: `input`, `output`, `epsilon`, `by` ("add" or "max")."""
    for node in view.of("Log"):
        if node.inputs[0] is None:
            continue
        guard = guarded(view, node.inputs[0])
        if 0.0 < guard.epsilon <= _LARGEST_EPSILON:
            details = {
                "input": guard.value.name,
                "output": node.outputs[0].name,
                "epsilon": guard.epsilon,
                "by": guard.by,
            }
            yield view.pattern("log-epsilon", guard.nodes[-1], (*guard.nodes, node), details)


@dataclass(frozen=True)
class _Clipped:
    """A value and what it was clipped to on the way."""

    value: ir.Value
    nodes: tuple[ir.Node, ...] = ()
    low: float | None = None
    high: float | None = None


def find_inverse_sigmoids(view: View) -> Iterator[Pattern]:
    """log(x / (1 - x)), log(x) - log(1 - x), with any clips on the way.

    Details: `input`, `output`, `low` and `high`: what x is kept between, None where it is not; `low_rest`: the least
    that 1 - x is kept above by a clip of its own.
    """
    for node in view.of("Log", "Sub"):
        if node.op_type == "Log":
            ratio = view.maker(node.inputs[0], "Div")
            if ratio is None:
                continue
            upper, lower = ratio.inputs
            between: tuple[ir.Node, ...] = (ratio,)
        else:
            left, right = view.maker(node.inputs[0], "Log"), view.maker(node.inputs[1], "Log")
            if left is None or right is None:
                continue
            upper, lower, between = left.inputs[0], right.inputs[0], (left, right)
        if upper is not None and lower is not None:
            found = _inverse(view, node, upper, lower, between)
            if found is not None:
                yield found


def _inverse(
    view: View, node: ir.Node, upper: ir.Value, lower: ir.Value, between: tuple[ir.Node, ...]
) -> Pattern | None:
    x, rest = _unclipped(view, upper), _unclipped(view, lower)
    subtract = view.maker(rest.value, "Sub")
    if subtract is None or not view.is_scalar(subtract.inputs[0], 1.0) or subtract.inputs[1] is None:
        return None
    again = _unclipped(view, subtract.inputs[1])
    if not view.alike(x.value, again.value):
        return None
    nodes = (*x.nodes, *again.nodes, subtract, *rest.nodes, *between, node)
    details = {
        "input": x.value.name,
        "output": node.outputs[0].name,
        "low": x.low,
        "high": again.high,
        "low_rest": rest.low,
    }
    return view.pattern("inverse-sigmoid", subtract, nodes, details)


def _unclipped(view: View, value: ir.Value, steps: int = 3) -> _Clipped:
    value = view.origin(value) or value
    node = view.maker(value, "Clip", "Max", "Min", "Add")
    if node is None or steps == 0 or node.inputs[0] is None:
        return _Clipped(value)
    if node.op_type == "Clip":
        source: ir.Value | None = node.inputs[0]
        low, high = clip_bounds(view, node)
    else:
        found = view.with_number(node)
        if found is None or math.isinf(found[1]):
            return _Clipped(value)
        if node.op_type == "Add" and not 0.0 < found[1] <= _LARGEST_EPSILON:
            return _Clipped(value)
        source = found[0]
        low, high = (None, found[1]) if node.op_type == "Min" else (found[1], None)
    if source is None:
        return _Clipped(value)
    inner = _unclipped(view, source, steps - 1)
    lows = [bound for bound in (low, inner.low) if bound is not None]
    highs = [bound for bound in (high, inner.high) if bound is not None]
    return _Clipped(inner.value, (*inner.nodes, node), max(lows, default=None), min(highs, default=None))
