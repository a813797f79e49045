"""Divisions by a guarded number, for HW404: a / max(x, e), a / (x + e), a / sqrt(x + e), written so that e survives.

Proof. Numerator and denominator may be divided by the same number. With c = max(x, t), t > e a power of two,
a / max(x, e) = (a / c) / max(x / c, e / t): where x >= t, c is x and the second divisor is 1; below, c is t, and all
three quotients by it are exact, so that in FP32 no bit changes. a / (x + e) = (a / c) / (x / c + (e / t) (t / c)), and
a / sqrt(x + e) = (a / sqrt(c)) / sqrt(x / c + (e / t) (t / c)), up to rounding; x must not be negative there.
Both t and e / t are FP16 numbers where e is at least 2^-48. Nothing new overflows: a / c is at most the result. What is
multiplied with 1 / max(x, e) is divided here: by itself 1 / e overflows, whatever is done about e.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.patterns.roots import clip_bounds
from halfwise.model.patterns.view import View
from halfwise.repair.graph_edit import GraphEdit
from halfwise.repair.log_forms import never_negative

__all__ = ["GuardedDivision", "guarded_division", "guarded_divisions", "write_division"]

_LOST = 2.0**-16  # a guard below loses bits that matter in FP16, or all
_SMALLEST = 2.0**-24
_NORMAL = 2.0**-14


@dataclass(frozen=True)
class GuardedDivision:
    """numerator / guarded, or numerator / sqrt(guarded)."""

    numerator: ir.Value
    x: ir.Value
    epsilon: float
    by: str  # "Add" or "Max"
    root: bool
    nodes: tuple[ir.Node, ...]

    @property
    def floor(self) -> float:
        """The power of two t; both it and e / t are FP16 numbers."""
        return min(max(2.0 ** math.floor(math.log2(self.epsilon) / 2), _SMALLEST), _NORMAL)

    @property
    def equation(self) -> tuple[str, str]:
        e, t = f"{self.epsilon:g}", f"2^{round(math.log2(self.floor))}"
        if self.by == "Max":
            inner, scaled = f"max(x, {e})", f"max(x / c, {self.epsilon / self.floor:.3g})"
        else:
            inner, scaled = f"(x + {e})", f"(x / c + {e} / c)"
        if self.root:
            root = "sqrt " if self.by == "Max" else "sqrt"
            return f"a / {root}{inner}", f"(a / sqrt(c)) / {root}{scaled}, c = max(x, {t})"
        return f"a / {inner}", f"(a / c) / {scaled}, c = max(x, {t})"


def guarded_divisions(view: View, but: Collection[str]) -> Iterator[GuardedDivision]:
    """All of them, but for those whose guard is among the nodes that other rewrites take."""
    for node in view.of("Div", "Mul"):
        found = guarded_division(view, node)
        if found is not None and not any(each.name in but for each in found.nodes):
            yield found


def guarded_division(view: View, node: ir.Node) -> GuardedDivision | None:
    """A division, or a product with the reciprocal, by a node."""
    if node.domain or node.outputs[0].dtype is not ir.DataType.FLOAT or len(node.inputs) != 2:
        return None
    if node.op_type == "Div" and node.inputs[0] is not None and not view.is_scalar(node.inputs[0], 1.0):
        return _divided(view, node, node.inputs[0], node.inputs[1], (node,))
    for numerator, other in (node.inputs, node.inputs[::-1]) if node.op_type == "Mul" else ():
        inverse = view.maker(other, "Reciprocal", "Div")
        if inverse is None or numerator is None or (inverse.op_type == "Div" and not _is_one(view, inverse)):
            continue
        divisor = inverse.inputs[0] if inverse.op_type == "Reciprocal" else inverse.inputs[1]
        found = _divided(view, node, numerator, divisor, (inverse, node))
        if found is not None:
            return found
    return None


def _divided(
    view: View, last: ir.Node, numerator: ir.Value, divisor: ir.Value | None, nodes: tuple[ir.Node, ...]
) -> GuardedDivision | None:
    spread = view.maker(divisor, "Expand")
    if spread is not None:
        if numerator.shape is None or numerator.shape != last.outputs[0].shape:
            return None
        nodes, divisor = (spread, *nodes), spread.inputs[0]
    root = view.maker(divisor, "Sqrt")
    if root is not None:
        nodes, divisor = (root, *nodes), root.inputs[0]
    guard = view.maker(divisor, "Add", "Max", "Clip")
    found = _unguarded(view, guard) if guard is not None else None
    if guard is None or found is None:
        return None
    x, epsilon = found
    by = "Add" if guard.op_type == "Add" else "Max"
    if not _SMALLEST**2 <= epsilon < _LOST or (by == "Add" and not never_negative(view, x)):
        return None
    return GuardedDivision(numerator, x, epsilon, by, root is not None, (guard, *nodes))


def _is_one(view: View, inverse: ir.Node) -> bool:
    """Whether the numerator is 1 and adds no dimension."""
    ranks = [view.rank(value) for value in inverse.inputs]
    return view.is_scalar(inverse.inputs[0], 1.0) and None not in ranks and ranks[0] <= ranks[1]  # type: ignore[operator]


def write_division(edit: GraphEdit, division: GuardedDivision) -> ir.Value:
    x, t = division.x, division.floor
    floor = edit.constant(t)
    c = edit.op("Max", [x, floor])
    rest, share = edit.op("Div", [x, c]), edit.constant(division.epsilon / t)
    if division.by == "Add":
        share = edit.op("Mul", [share, edit.op("Div", [floor, c])])
    guarded = edit.op(division.by, [rest, share])
    if division.root:
        c, guarded = edit.op("Sqrt", [c]), edit.op("Sqrt", [guarded])
    return edit.op("Div", [edit.op("Div", [division.numerator, c]), guarded])


def _unguarded(view: View, guard: ir.Node) -> tuple[ir.Value, float] | None:
    """What is guarded, and the number that does it."""
    if guard.op_type != "Clip":
        found = view.with_number(guard)
        return found if found is not None and len(guard.inputs) == 2 and found[0].dtype is ir.DataType.FLOAT else None
    low, high = clip_bounds(view, guard)
    computed = any(each is not None and view.scalar(each) is None for each in guard.inputs[1:])
    if low is None or high is not None or computed or guard.inputs[0] is None:
        return None
    return guard.inputs[0], low
