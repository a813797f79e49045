"""Sums without the terms that cancel in them, for HW408."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.patterns.view import View
from halfwise.repair.graph_edit import GraphEdit, whole
from halfwise.repair.rule import Ranges

__all__ = ["Recentred", "recentred", "write_recentred"]

_DEPTH = 2
_LOST = 8.0  # times the result, from which a term takes three bits of it


@dataclass(frozen=True)
class Recentred:
    """The terms that stay, with their signs; what constants come to (None where there is none); what is gone."""

    terms: tuple[tuple[int, ir.Value], ...]
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
    terms = _terms(view, node, 1, _DEPTH, inner)
    moving = [(sign, value) for sign, value in terms if whole(value) is None]
    constants = [(sign, value, array) for sign, value in terms if (array := whole(value)) is not None]
    gone: list[ir.Value] = []
    left = list(moving)
    for sign, value in moving:
        opposite = next((each for each in left if each == (-sign, value)), None)
        if opposite is not None and (sign, value) in left:
            left.remove((sign, value))
            left.remove(opposite)
            gone.append(value)
    together = len(constants) > 1
    total = sum((sign * array.astype(np.float64) for sign, _, array in constants), np.zeros(()))
    if together:
        gone += [value for _, value, _ in constants]
    if not gone or not left or not _same_shape(node, left) or not _worth(node, gone, total, ranges):
        return None
    constant = np.asarray(total, np.float32) if constants and np.any(total) else None
    if constant is not None and not _broadcasts(constant, left[0][1], node):
        return None
    return Recentred(tuple(left), constant, tuple(gone), tuple(dict.fromkeys(each.name or "" for each in inner)))


def write_recentred(edit: GraphEdit, shorter: Recentred) -> ir.Value:
    """The shorter sum, the positive terms first."""
    ordered = sorted(shorter.terms, key=lambda term: -term[0])
    sign, result = ordered[0]
    result = result if sign > 0 else edit.op("Neg", [result])
    for sign, value in ordered[1:]:
        result = edit.op("Add" if sign > 0 else "Sub", [result, value])
    if shorter.constant is not None:
        return edit.op("Add", [result, edit.constant(shorter.constant)])
    return result if len(ordered) > 1 or ordered[0][0] < 0 else edit.op("Identity", [result])


def _terms(view: View, node: ir.Node, sign: int, depth: int, inner: list[ir.Node]) -> list[tuple[int, ir.Value]]:
    found: list[tuple[int, ir.Value]] = []
    for slot, value in enumerate(node.inputs[:2]):
        if value is None:
            return []
        own = -sign if node.op_type == "Sub" and slot == 1 else sign
        behind = view.origin(value) or value
        source = view.maker(behind, "Add", "Sub") if depth else None
        if source is None:
            found.append((own, behind))
        else:
            inner.append(source)
            found.extend(_terms(view, source, own, depth - 1, inner))
    return found


def _same_shape(node: ir.Node, left: list[tuple[int, ir.Value]]) -> bool:
    """Whether the shape of the result does not come from a term that is gone."""
    shape = node.outputs[0].shape
    return shape is not None and any(value.shape == shape for _, value in left)


def _broadcasts(constant: NDArray[np.float32], value: ir.Value, node: ir.Node) -> bool:
    shape = node.outputs[0].shape
    if shape is None or constant.ndim > len(shape):
        return False
    sizes = list(shape)[len(shape) - constant.ndim :]
    return all(size in (1, dim) for size, dim in zip(constant.shape, sizes, strict=True))


def _worth(node: ir.Node, gone: list[ir.Value], total: NDArray[np.float64], ranges: Ranges) -> bool:
    """Whether what goes is much larger than the result. Where nothing was run: whether anything goes."""
    if not ranges.high:
        return True
    high = ranges.high.get(node.outputs[0].name or "", math.inf)
    largest = 0.0
    for value in gone:
        array = whole(value)
        size = float(np.abs(array).max(initial=0.0)) if array is not None else ranges.high.get(value.name or "", 0.0)
        largest = max(largest, size)
    return largest > _LOST * max(high, float(np.abs(total).max(initial=0.0)))
