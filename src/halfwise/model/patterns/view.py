"""A graph as a pattern reads it: operators by type, constants by value, values behind what changes nothing."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.model import Model
from halfwise.model.moving import Move, behind, beyond, movers
from halfwise.model.patterns.counts import counted
from halfwise.model.patterns.pattern import Pattern

__all__ = ["Use", "View", "attribute", "is_float"]

Use = tuple[ir.Node, int]  # a node and the slot in which it reads a value

_SMALL = 4096  # a constant of more elements is a weight: its values tell no pattern
_RESHAPED = movers(Move.SHAPE | Move.REPEAT | Move.CAST)
_ALIKE_DEPTH = 3


class View:
    """Reads one model; asks for nothing that needs more than the neighbours of a node."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._scalars: dict[ir.Value, float | None] = {}

    @cached_property
    def order(self) -> dict[ir.Node, int]:
        return {node: index for index, node in enumerate(self.model.nodes)}

    @cached_property
    def _by_op(self) -> dict[str, list[ir.Node]]:
        found: dict[str, list[ir.Node]] = {}
        for node in self.model.nodes:
            if not node.domain:
                found.setdefault(node.op_type, []).append(node)
        return found

    def of(self, *ops: str) -> Iterator[ir.Node]:
        """The nodes of these operators."""
        for op in ops:
            yield from self._by_op.get(op, ())

    def pattern(
        self, kind: str, anchor: ir.Node, nodes: Iterable[ir.Node], details: Mapping[str, Any] | None = None
    ) -> Pattern:
        ordered = sorted({anchor, *nodes}, key=self.order.__getitem__)
        return Pattern(kind, tuple(node.name or "" for node in ordered), anchor.name or "", details or {})

    # -- values -------------------------------------------------------------------------------------------------------

    def origin(self, value: ir.Value | None) -> ir.Value | None:
        """The value behind Identity, Dropout at inference, and Casts to the type it has already."""
        return behind(value)

    def maker(self, value: ir.Value | None, *ops: str) -> ir.Node | None:
        """The node that computes a value, if it is one of `ops`."""
        behind = self.origin(value)
        node = behind.producer() if behind is not None else None
        if node is None or node.domain or node.op_type not in ops:
            return None
        return node

    def uses(self, value: ir.Value, passed: Collection[str] = (), steps: int = 0) -> list[Use]:
        """Who reads a value, also through what changes nothing and through so many operators of `passed`."""
        return list(beyond(value, passed, steps))

    def only_use(self, value: ir.Value) -> Use | None:
        """The one reader of a value that is no output of the graph."""
        uses = self.uses(value)
        return uses[0] if len(uses) == 1 and not value.is_graph_output() else None

    def alike(self, one: ir.Value | None, other: ir.Value | None, depth: int = _ALIKE_DEPTH) -> bool:
        """Whether two values are equal: the same one, or computed twice in the same way."""
        one, other = self.origin(one), self.origin(other)
        if one is None or other is None:
            return one is other
        if one is other:
            return True
        left, right = one.producer(), other.producer()
        if left is None or right is None:
            first, second = self.scalar(one), self.scalar(other)
            return first is not None and first == second
        return (
            depth > 0
            and left.op_type == right.op_type
            and left.domain == right.domain
            and one.index() == other.index()
            and len(left.inputs) > 0
            and len(left.inputs) == len(right.inputs)
            and not any(attr.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attr in _attrs(left))
            and {a.name: a.value for a in _attrs(left)} == {a.name: a.value for a in _attrs(right)}
            and all(self.alike(a, b, depth - 1) for a, b in zip(left.inputs, right.inputs, strict=True))
        )

    # -- constants ----------------------------------------------------------------------------------------------------

    def weight(self, value: ir.Value | None) -> ir.Value | None:
        """The initializer that a value is, also behind a change of shape or type."""
        found = behind(value, _RESHAPED)
        return found if found is not None and found.is_initializer() else None

    def constant(self, value: ir.Value | None) -> NDArray[Any] | None:
        """A small constant's elements."""
        behind = self.weight(value)
        if behind is None or behind.const_value is None or behind.const_value.size > _SMALL:
            return None
        return np.asarray(behind.const_value.numpy())

    def scalar(self, value: ir.Value | None) -> float | None:
        """The number that a constant is, also if it is repeated, or computed from known dimensions."""
        if value is None:
            return None
        if value not in self._scalars:
            array = self.constant(value)
            number = None
            if array is not None and array.size and array.dtype.kind not in "OUSbV":
                first = float(array.flat[0])
                number = first if bool((array == array.flat[0]).all()) else None  # None for NaN, too
            elif array is None:
                number = counted(self, value)
            self._scalars[value] = number
        return self._scalars[value]

    def integer(self, value: ir.Value | None) -> int | None:
        """The whole number that a constant is, in whatever type."""
        number = self.scalar(value)
        return int(number) if number is not None and number.is_integer() else None

    def is_scalar(self, value: ir.Value | None, number: float) -> bool:
        found = self.scalar(value)
        return found is not None and math.isclose(found, number, rel_tol=1e-6)

    def with_number(self, node: ir.Node) -> tuple[ir.Value, float] | None:
        """For an operator of two operands: the computed one, and the number that the other one is."""
        if len(node.inputs) != 2:
            return None
        left, right = node.inputs
        for value, constant in ((left, right), (right, left)):
            number = self.scalar(constant)
            if number is not None and value is not None and self.weight(value) is None:
                return value, number
        return None

    # -- shapes -------------------------------------------------------------------------------------------------------

    def rank(self, value: ir.Value | None) -> int | None:
        return len(value.shape) if value is not None and value.shape is not None else None

    def axes(self, node: ir.Node) -> tuple[int, ...] | None:
        """What a reduction reduces, sorted, counted from the front where the rank is known; None if it is not."""
        rank = self.rank(node.inputs[0])
        named = attribute(node, "axes", None)
        if named is None and len(node.inputs) > 1 and node.inputs[1] is not None:
            array = self.constant(node.inputs[1])
            if array is None or array.dtype.kind not in "iu":
                return None
            named = [int(axis) for axis in array.reshape(-1)]
        if not named:
            if rank is None or attribute(node, "noop_with_empty_axes", 0):
                return None
            return tuple(range(rank))
        return tuple(sorted({axis % rank if rank else axis for axis in named}))

    def extent(self, value: ir.Value | None, axes: Iterable[int] | None = None) -> int | None:
        """How many elements a value has along `axes` (None: all); None where a dimension is open, and beyond memory."""
        if value is None or value.shape is None:
            return None
        sizes = list(value.shape)
        try:
            wanted = sizes if axes is None else [sizes[axis] for axis in axes]
        except IndexError:
            return None
        count = math.prod(dim for dim in wanted if isinstance(dim, int))
        return count if _all_known(wanted) and count <= sys.maxsize else None


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    found = node.attributes.get(name)
    return default if found is None else found.value


def is_float(value: ir.Value) -> bool:
    """Whether a value is a float tensor, or may be one for all that is known."""
    return value.dtype is None or value.dtype.is_floating_point()


def _attrs(node: ir.Node) -> Iterable[ir.Attr]:
    return node.attributes.values()


def _all_known(dims: Iterable[object]) -> bool:
    return all(isinstance(dim, int) for dim in dims)
