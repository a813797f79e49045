"""Sums over many elements: reductions, running sums, products of a matrix with its own transpose."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.view import View, attribute, is_float

__all__ = ["find_cumsums", "find_grams", "find_large_reductions"]

_MANY = 4096
_SUMS = ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")
_MEANS = ("ReduceMean", "GlobalAveragePool")


def find_large_reductions(view: View) -> Iterator[Pattern]:
    """A sum or mean over 4096 elements or more. Details: `count`, `op`, `input`, `sums` (False for means)."""
    for node in view.of(*_SUMS, *_MEANS):
        source = node.inputs[0]
        if node.op_type == "GlobalAveragePool":
            rank = view.rank(source)
            axes = tuple(range(2, rank)) if rank is not None else None
        else:
            axes = view.axes(node)
        count = view.extent(source, axes) if axes is not None else None
        if source is not None and count is not None and count >= _MANY and view.weight(source) is None:
            details = {"count": count, "op": node.op_type, "input": source.name, "sums": node.op_type in _SUMS}
            yield view.pattern("large-reduction", node, (), details)


def find_grams(view: View) -> Iterator[Pattern]:
    """x @ transpose(x). Details: `input`, `count` (elements in each sum; None where the dimension is open)."""
    for node in view.of("MatMul"):
        left, right = node.inputs[0], node.inputs[1]
        for x, other, axis in ((left, right, -1), (right, left, -2)):
            turned = view.maker(other, "Transpose")
            if turned is None or x is None or not view.alike(turned.inputs[0], x) or not _swaps_last(turned):
                continue
            details = {"input": x.name, "count": view.extent(x, (axis,)), "output": node.outputs[0].name}
            yield view.pattern("gram", node, (turned,), details)
            break


def _swaps_last(transpose: ir.Node) -> bool:
    order = attribute(transpose, "perm", None)
    if order is None:
        value = transpose.inputs[0]
        return value is not None and value.shape is not None and len(value.shape) == 2
    order = list(order)
    rank = len(order)
    return order == [*range(rank - 2), rank - 1, rank - 2]


def find_cumsums(view: View) -> Iterator[Pattern]:
    """CumSum. Details: `input`, `count` (None where the dimension is open)."""
    for node in view.of("CumSum"):
        source = node.inputs[0]
        if source is None or view.weight(source) is not None or not is_float(source):
            continue
        axis = view.integer(node.inputs[1])
        count = view.extent(source, (axis,)) if axis is not None else None
        yield view.pattern("cumsum", node, (), {"input": source.name, "count": count})
