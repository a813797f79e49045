"""The ground of a walk over a graph that follows powers of two: what each tensor's unknowns are."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.view import View
from halfwise.repair.extents import extents_of
from halfwise.repair.graph_edit import is_constant, whole
from halfwise.repair.rule import Ranges
from halfwise.repair.scale_atoms import PINNED, Atoms, Floats, Ints, Weights
from halfwise.repair.scale_classes import Classes, solve
from halfwise.repair.scale_layout import Layout, common

__all__ = ["LOUD", "ScaleWalk", "bias_fits", "count", "sizes"]


LOUD = 2.0**15  # no room for inputs not seen


class ScaleWalk:
    """Reads and writes the unknowns of tensors; who derives from it says what nodes do with them."""

    def __init__(self, model: Model, ranges: Ranges) -> None:
        self.model = model
        self.view = View(model)
        self.ranges = ranges
        self.extents = extents_of(self.view, ranges.known)
        self.atoms = Atoms()
        self.layouts: dict[ir.Value, Layout] = {}
        self.weights: list[Weights] = []

    @cached_property
    def classes(self) -> Classes:
        """What hangs on what; for when the walk is over."""
        return solve(self.atoms)

    def pinned(self, layout: Layout) -> bool:
        return bool((self.classes.labels[layout.atoms] == PINNED).any())

    def high(self, value: ir.Value) -> float:
        return self.ranges.high.get(value.name or "", math.inf)

    def rank(self, value: ir.Value | None) -> int | None:
        return self.view.rank(value)

    def _read(self, value: ir.Value) -> Layout:
        found = self.layouts.get(value)
        return found or Layout.along(None, np.array([PINNED]), np.array([self.high(value)]))

    def _write(self, node: ir.Node, axis: int | None, atoms: Ints, cap: Floats | None = None) -> bool:
        return self._put(node, Layout.along(axis, atoms, np.full(1, math.inf) if cap is None else cap))

    def _put(self, node: ir.Node, layout: Layout, *, capped: bool = True) -> bool:
        value = node.outputs[0]
        cap = layout.cap if capped else np.full(len(layout.atoms), math.inf)
        if self.high(value) > LOUD:
            self.atoms.free_loud(layout.atoms)
        self.layouts[value] = replace(layout, cap=np.minimum(cap, self.high(value)))
        return True

    def _data(self, node: ir.Node) -> ir.Value | None:
        value = node.inputs[0]
        return value if value is not None and value.dtype is ir.DataType.FLOAT and not is_constant(value) else None

    def _along(self, value: ir.Value, axis: int, size: int) -> Layout:
        """A tensor's unknowns, one for each of `size` channels along an axis."""
        return self._spread(self._read(value), (axis,), (size,))

    def _spread(self, layout: Layout, axes: Sequence[int], sizes: Sequence[int]) -> Layout:
        """Unknowns along just these axes, in growing order; all along others become one."""
        kept = [axis for axis, size in zip(axes, sizes, strict=True) if layout.size(axis) == size]
        return self._kept(layout, kept).spread(axes, sizes)

    def _uniform(self, value: ir.Value) -> Layout:
        """A tensor's only unknown: what it has are tied together."""
        return self._as_one(self._read(value))

    def _as_one(self, layout: Layout) -> Layout:
        return self._kept(layout, ())

    def _kept(self, layout: Layout, axes: Collection[int]) -> Layout:
        """Of a tensor's unknowns those along these axes: along others they are tied together."""
        lost = tuple(place for place, axis in enumerate(layout.axes) if axis not in axes)
        if not lost:
            return layout
        if not len(layout.atoms):
            return Layout.along(None, np.full(1, PINNED), np.zeros(1))
        block, cap = np.reshape(layout.atoms, layout.sizes), np.reshape(layout.cap, layout.sizes)
        first = block[tuple(slice(1) if place in lost else slice(None) for place in range(block.ndim))]
        self.atoms.tie(block, first)
        return Layout.over(layout.axes, first.shape, first.reshape(-1), cap.max(axis=lost).reshape(-1), layout.repeated)

    def _exact(self, layout: Layout) -> Layout:
        """A layout that a constant may take up: it is as long as the tensor along each axis."""
        return self._kept(layout, {*layout.axes} - layout.repeated)

    def _alike(self, layouts: Sequence[Layout], dims: Sequence[int | None] | None) -> list[Layout]:
        """Operands of one result, along the same axes of it, each as long as there."""
        axes, sizes = common(layouts, dims)
        return self._all_along(layouts, axes, sizes)

    def _all_along(self, layouts: Sequence[Layout], axes: Sequence[int], sizes: Sequence[int]) -> list[Layout]:
        made = [self._spread(layout, axes, sizes) for layout in layouts]
        repeated = frozenset[int]().union(*(layout.repeated for layout in made))
        return [replace(layout, repeated=repeated) for layout in made] if repeated else made

    def _in(self, value: ir.Value, rank: int) -> Layout:
        """A tensor's unknowns, along the axes of a result of this rank that it is broadcast to."""
        layout, own = self._read(value), self.view.rank(value)
        if own is None or own > rank:
            return self._as_one(layout)
        return layout.moved(rank - own) if own < rank else layout


def sizes(value: ir.Value) -> list[int | None] | None:
    """A tensor's dimensions, None where one is open."""
    return [dim if isinstance(dim, int) else None for dim in value.shape] if value.shape is not None else None


def bias_fits(node: ir.Node, size: int) -> bool:
    """Whether a bias is absent or a constant with one number a channel."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    array = whole(bias)
    return bias is None or (array is not None and array.shape in ((size,), (1, size)))


def count(dims: Sequence[int | None]) -> int | None:
    return math.prod(dim for dim in dims if dim is not None) if None not in dims else None
