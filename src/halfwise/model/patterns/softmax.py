"""Softmax and log-sum-exp written out by hand."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.roots import guarded
from halfwise.model.patterns.view import View

__all__ = ["find_logsumexps", "find_softmaxes"]


def find_softmaxes(view: View) -> Iterator[Pattern]:
    """exp(x) / sum(exp(x)). Details: `input`, `output`, `axes`, `stable` (the maximum is subtracted first), `of_each`
    (that of each sum: one of its terms is 1)."""
    for node in view.of("Div", "Mul"):
        for power, total, inverse in _ratios(view, node):
            guard = guarded(view, total)
            reduction = view.maker(guard.value, "ReduceSum")
            exponential = view.maker(power, "Exp")
            if reduction is None or exponential is None or not view.alike(reduction.inputs[0], power):
                continue
            x, stable, before = _shifted(view, exponential)
            details = {
                "input": x.name if x is not None else None,
                "output": node.outputs[0].name,
                "axes": view.axes(reduction),
                "stable": stable,
                "of_each": stable and _is_of_each(view, before[0], reduction),
            }
            nodes = (*before, exponential, reduction, *guard.nodes, *inverse, node)
            yield view.pattern("softmax", exponential, nodes, details)
            break


def find_logsumexps(view: View) -> Iterator[Pattern]:
    """log(sum(exp(x))). Details: `input`, `output`, `axes`, `stable`, `of_each`."""
    for node in view.of("Log"):
        if node.inputs[0] is None:
            continue
        guard = guarded(view, node.inputs[0])
        reduction = view.maker(guard.value, "ReduceSum")
        exponential = view.maker(reduction.inputs[0], "Exp") if reduction is not None else None
        if reduction is None or exponential is None:
            continue
        x, stable, before = _shifted(view, exponential)
        details = {
            "input": x.name if x is not None else None,
            "output": node.outputs[0].name,
            "axes": view.axes(reduction),
            "stable": stable,
            "of_each": stable and _is_of_each(view, before[0], reduction),
        }
        nodes = (*before, exponential, reduction, *guard.nodes, node)
        yield view.pattern("logsumexp", exponential, nodes, details)


def _ratios(view: View, node: ir.Node) -> Iterator[tuple[ir.Value, ir.Value, tuple[ir.Node, ...]]]:
    """Numerator, denominator, and the node that inverts the denominator where the division is a product."""
    left, right = node.inputs[0], node.inputs[1]
    if left is None or right is None:
        return
    if node.op_type == "Div":
        yield left, right, ()
        return
    for power, other in ((left, right), (right, left)):
        inverse = view.maker(other, "Reciprocal", "Div")
        if inverse is None:
            continue
        if inverse.op_type == "Reciprocal" and inverse.inputs[0] is not None:
            yield power, inverse.inputs[0], (inverse,)
        elif inverse.op_type == "Div" and view.is_scalar(inverse.inputs[0], 1.0) and inverse.inputs[1] is not None:
            yield power, inverse.inputs[1], (inverse,)


def _shifted(view: View, exponential: ir.Node) -> tuple[ir.Value | None, bool, tuple[ir.Node, ...]]:
    """What the exponential is taken of, before its maximum is subtracted."""
    shift = view.maker(exponential.inputs[0], "Sub")
    largest = view.maker(shift.inputs[1], "ReduceMax") if shift is not None else None
    if shift is None or largest is None or not view.alike(largest.inputs[0], shift.inputs[0]):
        return exponential.inputs[0], False, ()
    return shift.inputs[0], True, (largest, shift)


def _is_of_each(view: View, largest: ir.Node, reduction: ir.Node) -> bool:
    """Whether the maximum is taken within each sum, not of values beside it."""
    within, summed = view.axes(largest), view.axes(reduction)
    return within is not None and summed is not None and set(within) <= set(summed)
