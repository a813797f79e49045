"""What a part of joined tensors is: boxes[..., 2] of stacked corners is the corner that was put there."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.patterns.view import View, attribute

__all__ = ["Piece", "piece_of"]


@dataclass(frozen=True)
class Piece:
    """The value that a selection is equal to, and the nodes between the two."""

    value: ir.Value
    nodes: tuple[ir.Node, ...]


@dataclass(frozen=True)
class _Span:
    """What is taken of a tensor: elements from `start` to `stop` along `axis`, which is dropped where `drops`."""

    source: ir.Value
    axis: int
    start: int
    stop: int
    drops: bool
    nodes: tuple[ir.Node, ...]


def piece_of(view: View, value: ir.Value) -> Piece | None:
    """The operand of a Concat that a Slice, Gather or Split behind it takes out again, neither more nor less of it."""
    span = _span(view, value)
    concat = view.maker(span.source, "Concat") if span is not None else None
    if span is None or concat is None:
        return None
    rank = view.rank(span.source)
    if rank is None or attribute(concat, "axis", 0) % rank != span.axis:
        return None
    start = 0
    for operand in concat.inputs:
        size = _extent(operand, span.axis)
        if operand is None or size is None or start > span.start:
            return None
        if (start, start + size) == (span.start, span.stop):
            return _undropped(view, operand, span, concat)
        start += size
    return None


def _undropped(view: View, operand: ir.Value, span: _Span, concat: ir.Node) -> Piece | None:
    """Where the selection dropped the axis, the value from before that axis was made."""
    nodes = (concat, *span.nodes)
    if not span.drops:
        return Piece(operand, nodes)
    unsqueeze = view.maker(operand, "Unsqueeze")
    axes = _axes(view, unsqueeze) if unsqueeze is not None else None
    rank = view.rank(operand)
    if unsqueeze is None or axes is None or rank is None or unsqueeze.inputs[0] is None:
        return None
    same = len(axes) == 1 and axes[0] % rank == span.axis
    return Piece(unsqueeze.inputs[0], (unsqueeze, *nodes)) if same else None


def _span(view: View, value: ir.Value) -> _Span | None:
    squeeze = view.maker(value, "Squeeze")
    if squeeze is not None and squeeze.inputs[0] is not None:
        inner, axes = _span(view, squeeze.inputs[0]), _axes(view, squeeze)
        rank = view.rank(squeeze.inputs[0])
        if inner is None or axes is None or rank is None or len(axes) != 1 or inner.drops:
            return None
        if axes[0] % rank != inner.axis or inner.stop - inner.start != 1:
            return None
        return _Span(inner.source, inner.axis, inner.start, inner.stop, True, (*inner.nodes, squeeze))
    node = view.maker(value, "Slice", "Gather", "Split")
    source = node.inputs[0] if node is not None else None
    rank = view.rank(source)
    if node is None or source is None or not rank:
        return None
    if node.op_type == "Gather":
        return _gathered(view, node, source, rank)
    return _sliced(view, node, source, rank) if node.op_type == "Slice" else _split(view, node, value, source, rank)


def _gathered(view: View, node: ir.Node, source: ir.Value, rank: int) -> _Span | None:
    axis = attribute(node, "axis", 0) % rank
    index, size, index_rank = view.integer(node.inputs[1]), _extent(source, axis), view.rank(node.inputs[1])
    shape = node.inputs[1].shape if node.inputs[1] is not None else None
    if index is None or size is None or index_rank not in (0, 1) or (index_rank == 1 and list(shape or ()) != [1]):
        return None
    start = index + size if index < 0 else index
    return _Span(source, axis, start, start + 1, index_rank == 0, (node,))


def _sliced(view: View, node: ir.Node, source: ir.Value, rank: int) -> _Span | None:
    given = [_numbers(view, node, slot, name) for slot, name in enumerate(("starts", "ends", "axes", "steps"), 1)]
    starts, ends, axes, steps = given
    if starts is None or ends is None or len(starts) != 1 or (steps is not None and steps != [1]):
        return None
    axis = (axes[0] if axes is not None else 0) % rank
    size = _extent(source, axis)
    if size is None:
        return None
    start, stop, _ = slice(starts[0], ends[0]).indices(size)
    return _Span(source, axis, start, stop, False, (node,))


def _split(view: View, node: ir.Node, value: ir.Value, source: ir.Value, rank: int) -> _Span | None:
    axis = attribute(node, "axis", 0) % rank
    sizes = [_extent(output, axis) for output in node.outputs]
    place = (view.origin(value) or value).index()
    before = sizes[: (place or 0) + 1]
    if place is None or None in before:
        return None
    stop = sum(size for size in before if size is not None)
    return _Span(source, axis, stop - (before[-1] or 0), stop, False, (node,))


def _axes(view: View, node: ir.Node) -> list[int] | None:
    return _numbers(view, node, 1, "axes")


def _numbers(view: View, node: ir.Node, slot: int, name: str) -> list[int] | None:
    named = attribute(node, name, None)
    if named is not None:
        return [int(each) for each in named]
    array = view.constant(node.inputs[slot]) if slot < len(node.inputs) else None
    return [int(each) for each in array.reshape(-1)] if array is not None and array.dtype.kind in "iu" else None


def _extent(value: ir.Value | None, axis: int) -> int | None:
    shape = value.shape if value is not None else None
    size = shape[axis] if shape is not None and axis < len(shape) else None
    return size if isinstance(size, int) else None
