"""What the graph says of the units of an output: probabilities, and slices that different branches made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.moving import FROM_FIRST, Move, movers

__all__ = ["Piece", "axis_of_classes", "is_probability", "pieces_along"]

MOST_STEPS = 64

_PROBABILITIES = frozenset("Sigmoid Softmax HardSigmoid".split())
_SAME = FROM_FIRST | movers(Move.CAST) | frozenset("ReduceMax ReduceMin ReduceMean MaxPool AveragePool TopK".split())
_WITHIN = frozenset("Concat Max Min Mul Mean".split())  # of probabilities again probabilities
_THROUGH = movers(Move.CAST) | {"Identity"}
_RESHAPES = movers(Move.SHAPE)


def is_probability(value: ir.Value | None, steps: int = MOST_STEPS) -> bool:
    """Whether a tensor holds what a sigmoid or a softmax gave, or products and picks of such."""
    node = value.producer() if value is not None else None
    if node is None or node.domain or steps == 0:
        return False
    if node.op_type in _PROBABILITIES:
        return True
    if node.op_type in _SAME:
        return not (node.op_type in ("TopK", "MaxPool") and value.index()) and is_probability(node.inputs[0], steps - 1)  # type: ignore[union-attr]
    if node.op_type in _WITHIN:
        return all(is_probability(each, steps // 2) for each in node.inputs)
    return False


def axis_of_classes(value: ir.Value, steps: int = MOST_STEPS) -> int | None:
    """The axis, counted from the end, along which a softmax made a tensor; None where none did or it is not known."""
    node, shape = value.producer(), value.shape
    if node is None or node.domain or steps == 0:
        return None
    if node.op_type in _THROUGH and node.inputs[0] is not None:
        return axis_of_classes(node.inputs[0], steps - 1)
    if node.op_type not in ("Softmax", "LogSoftmax") or shape is None:
        return None
    axis = (*_ints(node, "axis"), -1)[0]
    return axis % len(shape) - len(shape) if -len(shape) <= axis < len(shape) else None


@dataclass(frozen=True)
class Piece:
    """The slice `start:stop` of a tensor along an axis, which one branch made."""

    start: int
    stop: int
    probability: bool


def pieces_along(value: ir.Value, axis: int, steps: int = MOST_STEPS) -> tuple[Piece, ...]:
    """The slices along `axis` that different branches made; one where none is known, none where its length is not."""
    shape = _static(value)
    if shape is None or not -len(shape) <= axis < len(shape) or not isinstance(shape[axis], int):
        return ()
    length = int(shape[axis] or 0)
    whole = (Piece(0, length, is_probability(value)),)
    node = value.producer()
    if node is None or node.domain or steps == 0:
        return whole
    if node.op_type in _THROUGH and node.inputs[0] is not None:
        return pieces_along(node.inputs[0], axis, steps - 1) or whole
    if node.op_type == "Transpose" and node.inputs[0] is not None:
        perm = _ints(node, "perm") or tuple(reversed(range(len(shape))))
        return (pieces_along(node.inputs[0], perm[axis], steps - 1) or whole) if len(perm) == len(shape) else whole
    if node.op_type in _RESHAPES and node.inputs[0] is not None:
        before = _same_axis(node.inputs[0], value, axis)
        return (pieces_along(node.inputs[0], before, steps - 1) or whole) if before is not None else whole
    if node.op_type == "Concat":
        return _joined(node, axis % len(shape), len(shape), steps) or whole
    return whole


def _joined(node: ir.Node, axis: int, rank: int, steps: int) -> tuple[Piece, ...]:
    found = [pieces_along(each, axis, steps // 2) if each is not None else () for each in node.inputs]
    if not all(found):
        return ()
    along = _ints(node, "axis")
    if along and along[0] % rank != axis:  # several of the same make-up, one behind the other
        spans = {tuple((piece.start, piece.stop) for piece in pieces) for pieces in found}
        if len(spans) > 1:
            return ()
        return tuple(
            Piece(same[0].start, same[0].stop, all(piece.probability for piece in same))
            for same in zip(*found, strict=True)
        )
    joined: list[Piece] = []
    for pieces in found:
        start = joined[-1].stop if joined else 0
        joined += [Piece(start + piece.start, start + piece.stop, piece.probability) for piece in pieces]
    return tuple(joined)


def _same_axis(before: ir.Value, after: ir.Value, axis: int) -> int | None:
    """The axis that a reshape leaves as it is: as long, and with as many elements in front of it or behind it."""
    old, new = _static(before), _static(after)
    if old is None or new is None:
        return None
    for other, length in enumerate(old):
        if length == new[axis] and (
            _count(old[:other]) == _count(new[:axis]) or _count(old[other + 1 :]) == _count(new[axis + 1 :])
        ):
            return other
    return None


def _count(dims: tuple[int | str | None, ...]) -> tuple[int, tuple[str, ...]] | None:
    """The elements in these axes, those of unknown length by their names."""
    if any(dim is None for dim in dims):
        return None
    product = 1
    for dim in dims:
        product *= dim if isinstance(dim, int) else 1
    return product, tuple(sorted(dim for dim in dims if isinstance(dim, str)))


def _static(value: ir.Value) -> tuple[int | str | None, ...] | None:
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def _ints(node: ir.Node, name: str) -> tuple[int, ...]:
    attribute: Mapping[str, ir.Attr] = node.attributes
    found = attribute.get(name)
    if found is None:
        return ()
    return (found.as_int(),) if found.type is ir.AttributeType.INT else tuple(found.as_ints())
