"""Sums without the terms that cancel in them, for HW408."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.float_sum import float_sum
from halfwise.model.patterns.pieces import piece_of
from halfwise.model.patterns.view import View
from halfwise.repair.graph_edit import GraphEdit, is_constant, whole
from halfwise.repair.rule import Ranges

__all__ = ["Recentred", "recentred", "write_recentred"]

_DEPTH = 2
_STEPS = 6  # factors and selections between two sums
_LOST = 8.0  # times the result, from which a term takes three bits of it
_BEYOND = 2.0**11  # from here on FP32 itself has lost more of the result than the rule's bound allows


@dataclass(frozen=True)
class _Term:
    """`factor` times `base`; in the sum stands `outer` times `value`, which is a multiple of the base."""

    factor: float
    base: ir.Value
    outer: float
    value: ir.Value


@dataclass(frozen=True)
class Recentred:
    """The terms that stay, each with a factor; what constants come to (None where there is none); what is gone."""

    terms: tuple[tuple[float, ir.Value], ...]
    constant: NDArray[np.float32] | None
    gone: tuple[ir.Value, ...]
    names: tuple[str, ...]

    @property
    def says(self) -> str:
        gone = ", ".join(value.name or "" for value in self.gone)
        return f"(u + v) - (u - w) = v + w: {gone} cancels before it is added"


def recentred(view: View, node: ir.Node, ranges: Ranges) -> Recentred | None:
    """The shorter sum that a difference (or sum) of sums is; None where nothing large cancels in it."""
    if node.domain or node.op_type not in ("Add", "Sub") or node.outputs[0].dtype is not ir.DataType.FLOAT:
        return None
    inner: list[ir.Node] = []
    terms = _terms(view, node, 1.0, _DEPTH, inner)
    moving = [term for term in terms if not is_constant(term.base)]
    constants = [(term.factor, term.base, array) for term in terms if (array := whole(term.base)) is not None]
    groups: dict[ir.Value, list[_Term]] = {}
    for term in moving:
        groups.setdefault(term.base, []).append(term)
    lost = [group for group in groups.values() if len(group) > 1 and float_sum(term.factor for term in group) == 0.0]
    left = [_together(group) for group in groups.values() if group not in lost]
    gone = [(group[0].outer, group[0].value) for group in lost]
    together = len(constants) > 1
    total = sum((factor * array.astype(np.float64) for factor, _, array in constants), np.zeros(()))
    if together:
        gone += [(factor, value) for factor, value, _ in constants]
    if not gone or not left or not _same_shape(node, left) or not _worth(node, gone, total, ranges):
        return None
    constant = np.asarray(total, np.float32) if constants and np.any(total) else None
    if constant is not None and not _broadcasts(constant, left[0][1], node):
        return None
    values = tuple(dict.fromkeys(value for _, value in gone))
    return Recentred(tuple(left), constant, values, tuple(dict.fromkeys(each.name or "" for each in inner)))


def write_recentred(edit: GraphEdit, shorter: Recentred) -> ir.Value:
    """The shorter sum, the positive terms first."""
    ordered = [(factor, _scaled(edit, abs(factor), value)) for factor, value in shorter.terms]
    ordered.sort(key=lambda term: term[0] < 0)
    factor, result = ordered[0]
    result = result if factor > 0 else edit.op("Neg", [result])
    for factor, value in ordered[1:]:
        result = edit.op("Add" if factor > 0 else "Sub", [result, value])
    if shorter.constant is not None:
        return edit.op("Add", [result, edit.constant(shorter.constant)])
    return result if result not in (value for _, value in shorter.terms) else edit.op("Identity", [result])


def _scaled(edit: GraphEdit, factor: float, value: ir.Value) -> ir.Value:
    return value if factor == 1.0 else edit.op("Mul", [value, edit.constant(factor)])


def _together(group: list[_Term]) -> tuple[float, ir.Value]:
    """One term as it stands; several of the same value by their sum."""
    if len(group) == 1:
        return group[0].outer, group[0].value
    return float_sum(term.factor for term in group), group[0].base


def _terms(view: View, node: ir.Node, factor: float, depth: int, inner: list[ir.Node]) -> list[_Term]:
    found: list[_Term] = []
    for slot, value in enumerate(node.inputs[:2]):
        if value is None:
            return []
        turned = -1.0 if node.op_type == "Sub" and slot == 1 else 1.0
        found.extend(_of_value(view, value, factor * turned, depth, inner))
    return found


def _of_value(view: View, value: ir.Value, factor: float, depth: int, inner: list[ir.Node]) -> list[_Term]:
    """The terms of a value: through constant factors, and through what joins tensors and takes one out again."""
    start = view.origin(value) or value
    base, own = start, 1.0
    passed: list[ir.Node] = []
    for _ in range(_STEPS):
        piece = piece_of(view, base)
        if piece is not None:
            passed += piece.nodes
            base = view.origin(piece.value) or piece.value
            continue
        product = view.maker(base, "Mul", "Div", "Neg")
        times = _constant_factor(view, product) if product is not None else None
        if product is None or times is None:
            break
        passed.append(product)
        base, own = view.origin(times[0]) or times[0], own * times[1]
    source = view.maker(base, "Add", "Sub") if depth else None
    if source is not None and source.outputs[0].dtype is ir.DataType.FLOAT:
        inner += [*passed, source]
        return _terms(view, source, factor * own, depth - 1, inner)
    return [_Term(factor * own, base, factor, start)]


def _constant_factor(view: View, node: ir.Node) -> tuple[ir.Value, float] | None:
    """What is multiplied with which number, where that does not widen it."""
    if node.op_type == "Neg":
        return (node.inputs[0], -1.0) if node.inputs[0] is not None else None
    found = view.with_number(node)
    if found is None or not math.isfinite(found[1]) or found[1] == 0.0:
        return None
    value, number = found
    other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    if node.op_type == "Div" and node.inputs[0] is not value:
        return None
    if other is None or other.shape is None or any(dim != 1 for dim in other.shape):
        return None
    if value.shape is None or len(other.shape) > len(value.shape):
        return None
    return value, number if node.op_type == "Mul" else 1.0 / number


def _same_shape(node: ir.Node, left: list[tuple[float, ir.Value]]) -> bool:
    """Whether the shape of the result does not come from a term that is gone."""
    shape = node.outputs[0].shape
    return shape is not None and any(value.shape == shape for _, value in left)


def _broadcasts(constant: NDArray[np.float32], value: ir.Value, node: ir.Node) -> bool:
    shape = node.outputs[0].shape
    if shape is None or constant.ndim > len(shape):
        return False
    sizes = list(shape)[len(shape) - constant.ndim :]
    return all(size in (1, dim) for size, dim in zip(constant.shape, sizes, strict=True))


def _worth(node: ir.Node, gone: list[tuple[float, ir.Value]], total: NDArray[np.float64], ranges: Ranges) -> bool:
    """Whether what goes is much larger than the result, and FP32 has digits of it. Where nothing was run: yes."""
    if not ranges.high:
        return True
    high = ranges.high.get(node.outputs[0].name or "", 0.0)  # 0 where nothing is known of it: in a body
    largest = 0.0
    for factor, value in gone:
        array = whole(value)
        size = float(np.abs(array).max(initial=0.0)) if array is not None else ranges.high.get(value.name or "", 0.0)
        largest = max(largest, abs(factor) * size)
    left = max(high, float(np.abs(total).max(initial=0.0)))
    return largest > _LOST * left and (left == 0.0 or largest < _BEYOND * left)
