"""Writes a norm so that its squares fit into FP16 where no operator says it, for HW402.

Proof. A norm does not change when x and its epsilon are scaled together: with c' = c / s,
c / sqrt(mean(c^2) + e) = c' / sqrt(mean(c'^2) + e / s^2); an epsilon added behind the root becomes e / s there.

With a constant s = 2^k nothing but exponents changes; k is below 0 where squares would be subnormal. The epsilon must
survive, too: where e / 4^k would be no FP16 number, s is max(|c|) of each row instead, and at least sqrt(e): then no
square exceeds 1, and the mean of the squares or the epsilon is at least 1 / n. Where FP16 has no such number, s is at
least its smallest one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from halfwise.repair.graph_edit import GraphEdit
from halfwise.repair.rule import Ranges

__all__ = ["needs_scaling", "shift_for", "write_scaled"]

_FITS = 2.0**14  # squares up to here leave room for inputs not seen
_QUIET = 2.0**-6  # largest square, below which others are subnormal
_AMPLE = 8.0  # a quiet row's largest value, once it is scaled
_SMALLEST = 2.0**-24
_WIDEST = 255.0
_MOST = 15  # the power of two that FP16 holds


def needs_scaling(square: str, ranges: Ranges) -> bool:
    """Whether squares came near FP16's limits, or nothing is known of them."""
    high = ranges.high.get(square, math.inf)
    return not (high == 0.0 or _QUIET <= high <= _FITS)


def shift_for(square: str, epsilon: float, guard: str, ranges: Ranges) -> int | None:
    """The k of the constant factor 2^-k; None where none brings squares into range and keeps the epsilon."""
    high = ranges.high.get(square, math.inf)
    if not math.isfinite(high):
        return None
    if high < _QUIET:
        least = math.ceil(math.log2(epsilon / _FITS) / 2) if epsilon else -_MOST
        shift = min(-1, max(math.ceil(math.log2(math.sqrt(high) / _AMPLE)), least, -_MOST))
        kept = epsilon * (2.0 if guard.endswith("outside") else 4.0) ** -shift
    else:
        shift = max(1, math.ceil(math.log2(2.0 * math.sqrt(high) / _WIDEST)))
        kept = epsilon * 4.0**-shift
    return shift if epsilon == 0.0 or kept >= _SMALLEST else None


def write_scaled(edit: GraphEdit, opset: int, x: ir.Value, told: Mapping[str, Any]) -> ir.Value:
    """The norm of x without its scale and bias; `told` as `NormPlace.parameters` tells it."""
    axes, epsilon, shift = told["axes"], told["epsilon"], told["shift"]
    by, _, outside = str(told["guard"]).partition(" ")
    centred = edit.op("Sub", [x, _reduced(edit, opset, "ReduceMean", x, axes)]) if told["centred"] else x
    own = epsilon if outside else math.sqrt(epsilon)
    floor = max(own, _SMALLEST)
    guard: ir.Value | None = None
    if shift is not None:
        small = edit.op("Mul", [centred, edit.constant(2.0**-shift)])
        guard = edit.constant(epsilon * 2.0 ** -(shift if outside else 2 * shift)) if epsilon else None
    else:
        size = _reduced(edit, opset, "ReduceMax", edit.op("Abs", [centred]), axes)
        if epsilon:
            size = edit.op("Max", [size, edit.constant(floor)])
            guard = edit.op("Div", [edit.constant(floor), size])
            guard = guard if outside else edit.op("Mul", [guard, guard])
            if own < floor:
                guard = edit.op("Mul", [guard, edit.constant(epsilon / (floor if outside else floor**2))])
        small = edit.op("Div", [centred, size])
    variance = _reduced(edit, opset, "ReduceMean", edit.op("Mul", [small, small]), axes)
    if told["factor"] != 1.0:
        variance = edit.op("Mul", [variance, edit.constant(told["factor"])])
    word = {"add": "Add", "max": "Max"}[by]
    if guard is not None and not outside:
        variance = edit.op(word, [variance, guard])
    root = edit.op("Sqrt", [variance])
    if guard is not None and outside:
        root = edit.op(word, [root, guard])
    return edit.op("Div", [small, root])


def _reduced(edit: GraphEdit, opset: int, op: str, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    if opset < 18:
        return edit.op(op, [x], {"axes": list(axes), "keepdims": 1})
    return edit.op(op, [x, edit.axes(axes)], {"keepdims": 1})
