"""The ground of a walk over a graph that follows powers of two: what each tensor's unknowns are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.view import View
from halfwise.repair.graph_edit import is_constant, whole
from halfwise.repair.rule import Ranges
from halfwise.repair.scale_atoms import PINNED, Atoms, Floats, Ints, Layout, Weights
from halfwise.repair.scale_classes import Classes, solve

__all__ = ["ScaleWalk", "bias_fits", "count", "sizes"]


_LOUD = 2.0**15  # no room for inputs not seen


class ScaleWalk:
    """Reads and writes the unknowns of tensors; who derives from it says what nodes do with them."""

    def __init__(self, model: Model, ranges: Ranges) -> None:
        self.model = model
        self.view = View(model)
        self.ranges = ranges
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
        return found or Layout(None, np.array([PINNED]), np.array([self.high(value)]))

    def _write(self, node: ir.Node, axis: int | None, atoms: Ints, cap: Floats | None = None) -> bool:
        value = node.outputs[0]
        cap = np.full(len(atoms), math.inf) if cap is None else np.broadcast_to(cap, atoms.shape)
        if self.high(value) > _LOUD:
            self.atoms.free_loud(atoms)
        self.layouts[value] = Layout(axis, atoms, np.minimum(cap, self.high(value)))
        return True

    def _data(self, node: ir.Node) -> ir.Value | None:
        value = node.inputs[0]
        return value if value is not None and value.dtype is ir.DataType.FLOAT and not is_constant(value) else None

    def _along(self, value: ir.Value, axis: int, size: int) -> Layout:
        """A tensor's unknowns, one for each of `size` channels along an axis."""
        return self._spread(self._read(value), axis, size)

    def _spread(self, layout: Layout, axis: int, size: int) -> Layout:
        if layout.axis != axis or len(layout.atoms) != size:
            layout = self._as_one(layout)
        return Layout(axis, np.broadcast_to(layout.atoms, size), np.broadcast_to(layout.cap, size))

    def _uniform(self, value: ir.Value) -> Layout:
        """A tensor's only unknown: what it has are tied together."""
        return self._as_one(self._read(value))

    def _as_one(self, layout: Layout) -> Layout:
        self.atoms.tie(layout.atoms, layout.first)
        return Layout(None, layout.first, layout.cap.max(keepdims=True) if layout.cap.size else np.zeros(1))

    def _axis_in(self, value: ir.Value, rank: int) -> int | None:
        """Where a tensor's channels are in a result of this rank, that it is broadcast to."""
        axis, own = self._read(value).axis, self.view.rank(value)
        return axis + rank - own if axis is not None and own is not None else None

    def _keep(self, node: ir.Node, layout: Layout, axis: int | None, capped: bool = True) -> bool:
        return self._write(node, axis, layout.atoms, layout.cap if capped else None)


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
