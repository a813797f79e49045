"""Numbers that a graph computes from the shapes of its tensors: how many elements a mean is over, for instance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.moving import Move, movers

__all__ = ["Makers", "counted"]

Numbers = Sequence[float | None]  # None where a dimension is open


class Makers(Protocol):
    """What is asked of a graph here: what is constant in it, and what makes a value."""

    def constant(self, value: ir.Value | None) -> NDArray[Any] | None: ...

    def maker(self, value: ir.Value | None, *ops: str) -> ir.Node | None: ...


_STEPS = 6
_HANDED_ON = movers(Move.SHAPE | Move.CAST)


def counted(view: Makers, value: ir.Value | None) -> float | None:
    """The one number that a value is, computed from known dimensions; None where it is not."""
    numbers = _numbers(view, value, _STEPS)
    return numbers[0] if numbers is not None and len(numbers) == 1 else None


def _numbers(view: Makers, value: ir.Value | None, steps: int) -> Numbers | None:
    array = view.constant(value)
    if array is not None:
        return [float(number) for number in array.reshape(-1)] if array.dtype.kind in "iuf" else None
    node = view.maker(value, "Shape", "Gather", "ReduceProd", "Sub", *_HANDED_ON)
    if node is None or steps == 0 or node.inputs[0] is None:
        return None
    if node.op_type == "Shape":
        return _shape(node)
    first = _numbers(view, node.inputs[0], steps - 1)
    if first is None or node.op_type in _HANDED_ON:
        return first
    if node.op_type == "ReduceProd":
        return None if None in first else [math.prod(number for number in first if number is not None)]
    second = _numbers(view, node.inputs[1], steps - 1)
    if node.op_type == "Gather":
        return _chosen(first, second)
    if second is None or len(first) != 1 or len(second) != 1 or first[0] is None or second[0] is None:
        return None
    return [first[0] - second[0]]


def _shape(node: ir.Node) -> Numbers | None:
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if shape is None:
        return None
    dims = [float(dim) if isinstance(dim, int) else None for dim in shape]
    return dims[node.attributes.get_int("start", 0) : node.attributes.get_int("end", len(dims))]


def _chosen(numbers: Numbers, places: Numbers | None) -> Numbers | None:
    if places is None or not all(place is not None and -len(numbers) <= place < len(numbers) for place in places):
        return None
    return [numbers[int(place)] for place in places if place is not None]
