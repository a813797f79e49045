"""Means, sums and squares as exporters spell them: the pieces that norms, softmax and variances are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from halfwise.model.patterns.view import View, attribute

__all__ = ["Reduced", "Square", "centred", "mean_of", "mean_square_of", "square_of", "sum_of", "sum_square_of"]

_SUM_COUNT_TOLERANCE = 1e-3
_ROUNDED = 1e-5  # how far a written 1 / n may be off


@dataclass(frozen=True)
class Square:
    """base * base"""

    base: ir.Value
    node: ir.Node


@dataclass(frozen=True)
class Reduced:
    """The mean or sum of `base` (or of its squares) over `axes`; None where the axes are not known.

    `factor` is what a mean is off by: 1, or n / (n - 1) where the variance is the unbiased one.
    """

    base: ir.Value
    axes: tuple[int, ...] | None
    nodes: tuple[ir.Node, ...]
    square: ir.Node | None = None  # where the square is taken
    factor: float = 1.0


def square_of(view: View, value: ir.Value | None) -> Square | None:
    """Pow(x, 2) or Mul(x, x)."""
    node = view.maker(value, "Pow", "Mul")
    if node is None or node.inputs[0] is None:
        return None
    if node.op_type == "Pow":
        return Square(node.inputs[0], node) if view.is_scalar(node.inputs[1], 2.0) else None
    return Square(node.inputs[0], node) if view.alike(node.inputs[0], node.inputs[1]) else None


def sum_of(view: View, value: ir.Value | None) -> Reduced | None:
    """ReduceSum that keeps its dimensions, or gets them back right away."""
    return _reduction(view, value, "ReduceSum") or _restored(view, value, "sum")


def mean_of(view: View, value: ir.Value | None) -> Reduced | None:
    """ReduceMean, GlobalAveragePool, or a sum times 1 / n; its dimensions are kept, or given back right away."""
    return _mean(view, value, True) or _restored(view, value, "mean")


def sum_square_of(view: View, value: ir.Value | None) -> Reduced | None:
    """The sum of squares, in one operator or in two."""
    whole = _reduction(view, value, "ReduceSumSquare")
    if whole is not None:
        return Reduced(whole.base, whole.axes, whole.nodes, whole.nodes[0])
    return _of_squares(view, sum_of(view, value))


def mean_square_of(view: View, value: ir.Value | None) -> Reduced | None:
    """The mean of squares, in one operator or in several."""
    return _of_squares(view, mean_of(view, value)) or _rescaled(view, value, "mean square")


def centred(view: View, value: ir.Value | None) -> tuple[ir.Value, Reduced, ir.Node] | None:
    """For x - mean(x), or mean(x) - x: the x, its mean, and the node that subtracts."""
    node = view.maker(value, "Sub")
    if node is None:
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        mean = mean_of(view, other)
        if x is not None and mean is not None and mean.factor == 1.0 and view.alike(mean.base, x):
            return x, mean, node
    return None


def _mean(view: View, value: ir.Value | None, kept: bool) -> Reduced | None:
    mean = _reduction(view, value, "ReduceMean", kept) or (_pooled(view, value) if kept else None)
    return mean or _rescaled(view, value, "mean", kept)


def _reduction(view: View, value: ir.Value | None, op: str, kept: bool = True) -> Reduced | None:
    node = view.maker(value, op)
    if node is None or node.inputs[0] is None or bool(attribute(node, "keepdims", 1)) is not kept:
        return None
    axes = view.axes(node)
    return Reduced(node.inputs[0], axes, (node,)) if axes else None


def _restored(view: View, value: ir.Value | None, wanted: Literal["mean", "sum"]) -> Reduced | None:
    """A reduction that drops its dimensions, with a change of shape behind it that puts ones in their places."""
    nodes: list[ir.Node] = []
    inner = value
    while (node := view.maker(inner, "Reshape", "Unsqueeze", "Expand")) is not None:
        nodes.insert(0, node)
        inner = node.inputs[0]
    reduced = None
    if nodes:
        reduced = _mean(view, inner, False) if wanted == "mean" else _reduction(view, inner, "ReduceSum", False)
    if reduced is None or reduced.axes is None or value is None:
        return None
    whole, made = reduced.base.shape, value.shape
    if whole is None or made is None or len(whole) != len(made):
        return None
    rest = [(dim, made[axis]) for axis, dim in enumerate(whole) if axis not in reduced.axes]
    unknown = sum(1 for one, other in rest if one != other and not (isinstance(one, int) and isinstance(other, int)))
    if any(made[axis] != 1 for axis in reduced.axes) or unknown > 1:
        return None  # one that is not known by number follows from the others
    if any(one != other for one, other in rest if isinstance(one, int) and isinstance(other, int)):
        return None
    return Reduced(reduced.base, reduced.axes, (*reduced.nodes, *nodes), reduced.square, reduced.factor)


def _pooled(view: View, value: ir.Value | None) -> Reduced | None:
    node = view.maker(value, "GlobalAveragePool")
    rank = view.rank(node.inputs[0]) if node is not None else None
    if node is None or node.inputs[0] is None or rank is None:
        return None
    return Reduced(node.inputs[0], tuple(range(2, rank)), (node,))


def _of_squares(view: View, reduced: Reduced | None) -> Reduced | None:
    square = square_of(view, reduced.base) if reduced is not None else None
    if reduced is None or square is None:
        return None
    return Reduced(square.base, reduced.axes, (square.node, *reduced.nodes), square.node, reduced.factor)


def _rescaled(
    view: View, value: ir.Value | None, wanted: Literal["mean", "mean square"], kept: bool = True
) -> Reduced | None:
    """A sum divided by its count, or a mean times n / (n - 1)."""
    node = view.maker(value, "Div", "Mul")
    found = view.with_number(node) if node is not None else None
    if node is None or found is None:
        return None
    total, number = found
    if node.op_type == "Div" and node.inputs[0] is not total:
        return None
    if number <= 0.0:
        return None
    factor = number if node.op_type == "Mul" else 1.0 / number
    if wanted == "mean":
        reduced = sum_of(view, total) if kept else _reduction(view, total, "ReduceSum", False)
    else:
        reduced = sum_square_of(view, total)
    if reduced is None or reduced.axes is None:
        return _unbiased(view, node, total, factor, kept) if wanted == "mean" else None
    count = view.extent(reduced.base, reduced.axes)
    off = factor * count if count is not None else 1.0
    if count is not None and not _near(off, 1.0) and not (count > 1 and _near(off, count / (count - 1))):
        return None
    off = 1.0 if math.isclose(off, 1.0, rel_tol=_ROUNDED) else off
    return Reduced(reduced.base, reduced.axes, (*reduced.nodes, node), reduced.square, off)


def _unbiased(view: View, node: ir.Node, total: ir.Value, factor: float, kept: bool) -> Reduced | None:
    """mean * n / (n - 1), as one multiplication or as Mul(n) and Div(n - 1)."""
    nodes: tuple[ir.Node, ...] = (node,)
    mean = _reduction(view, total, "ReduceMean", kept)
    inner = view.maker(total, "Mul") if mean is None else None
    found = view.with_number(inner) if inner is not None else None
    if inner is not None and found is not None:
        mean, factor, nodes = _reduction(view, found[0], "ReduceMean", kept), factor * found[1], (inner, node)
    count = view.extent(mean.base, mean.axes) if mean is not None and mean.axes is not None else None
    if mean is None or count is None or count < 2 or not _near(factor, count / (count - 1)):
        return None
    return Reduced(mean.base, mean.axes, (*mean.nodes, *nodes), None, factor)


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_SUM_COUNT_TOLERANCE)
