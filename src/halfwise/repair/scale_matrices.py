"""What powers of two become in products of two computed matrices: of queries and keys, of attention and values."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from halfwise.model.moving import behind
from halfwise.model.patterns.view import View, attribute
from halfwise.repair.graph_edit import is_constant, whole
from halfwise.repair.scale_atoms import Ints, Weights
from halfwise.repair.scale_blocks import blocks, stored
from halfwise.repair.scale_layout import Layout
from halfwise.repair.scale_moves import ScaleMoves
from halfwise.repair.scale_walk import count

__all__ = ["ScaleMatrices"]

_ONE_AXIS = 13  # the opset from which Softmax does not flatten
_TWO = re.compile(r"(\w+),(\w+)->(\w*)")


class ScaleMatrices(ScaleMoves):
    """Powers of rows, of columns and of heads pass; along what is summed over all pairs make the same."""

    def _matrices(self, node: ir.Node, value: ir.Value, other: ir.Value) -> bool:
        """A MatMul."""
        left, right, rank = self._read(value), self._read(other), self.view.rank(node.outputs[0])
        own, theirs = self.view.rank(value), self.view.rank(other)
        if own is None or theirs is None or rank is None or min(own, theirs) < 2:
            return self._summed(node, (value, other), (self._as_one(left), self._as_one(right)), (), None, False)
        left = left.at([rank if axis == own - 1 else axis + rank - own for axis in left.axes])
        right = right.at([rank if axis == theirs - 2 else axis + rank - theirs for axis in right.axes])
        many = (self.extents.whole(other) or [None] * theirs)[-2]
        return self._summed(node, (value, other), (left, right), (rank,), many, _is_share(self.view, value))

    def _einsum(self, node: ir.Node) -> bool:
        """One whose axes have names of their own."""
        told = _TWO.fullmatch(str(attribute(node, "equation", "")).replace(" ", ""))
        values = [value for value in node.inputs if value is not None and value.dtype is ir.DataType.FLOAT]
        if told is None or len(values) != 2:
            return False
        *names, made = told.groups()
        if any(len({*each}) < len(each) for each in told.groups()) or [*map(len, names)] != [*map(self.rank, values)]:
            return False
        constant = [is_constant(value) for value in values]
        if any(constant):
            slot = constant.index(True)
            return not all(constant) and self._by_weight(node, values[1 - slot], slot, names, made)
        summed = "".join(sorted({*names[0], *names[1]} - {*made}))
        left, right = (
            (layout := self._read(value)).at([(made + summed).index(each[axis]) for axis in layout.axes])
            for value, each in zip(values, names, strict=True)
        )
        sizes = dict(zip(names[1], self.extents.whole(values[1]) or [None] * len(names[1]), strict=True))
        share = summed == names[0][-1] and _is_share(self.view, values[0])
        axes = range(len(made), len(made + summed))
        many = count([sizes.get(name) for name in summed])
        return self._summed(node, (values[0], values[1]), (left, right), axes, many, share)

    def _by_weight(self, node: ir.Node, value: ir.Value, slot: int, names: Sequence[str], made: str) -> bool:
        """The weight takes one power of all that is read, and gives one to each place along the axes of its own."""
        array = stored(node.inputs[slot])
        if array is None:
            return False
        own = [axis for axis, name in enumerate(names[slot]) if name in made and name not in names[1 - slot]]
        sizes, layout, ones = [array.shape[axis] for axis in own], self._uniform(value), (1,) * array.ndim
        square, peak, total = (each.reshape(-1, 1) for each in blocks(array, tuple(own)))
        rows, columns = self.atoms.fresh(len(square)), np.broadcast_to(layout.atoms[None], square.shape)
        shape = tuple(size if axis in own else 1 for axis, size in enumerate(array.shape))
        self.weights.append(Weights(node, slot, rows, shape, square, peak, columns, ones))
        axes = [made.index(names[slot][axis]) for axis in own]
        return self._put(node, Layout.over(axes, sizes, rows, layout.cap * total[:, 0]))

    def _summed(
        self, node: ir.Node, values: tuple[ir.Value, ir.Value], layouts: tuple[Layout, Layout],
        summed: Collection[int], many: int | None, share: bool,
    ) -> bool:  # fmt: skip
        """Layouts along the axes of the result, and behind those along what `many` products are summed over; of a
        `share` on the left the sums are no more than what is on the right."""
        left, right = layouts
        alike = {axis for axis in left.axes if left.size(axis) == right.size(axis)}
        lost = ({*left.axes} & {*right.axes} | {*summed}) - alike
        left, right = (self._kept(each, {*each.axes} - lost) for each in layouts)
        if {*right.axes} - {*left.axes}:  # or each place of the result would have an unknown
            left = self._kept(left, right.axes)
        axes = sorted({*left.axes, *right.axes})
        sizes = [1 if axis in summed else max(left.size(axis), right.size(axis)) for axis in axes]
        made = self.atoms.fresh(math.prod(sizes))
        blocks = [layout.block(layout.atoms, axes) for layout in (left, right)]
        self._multiply(made.reshape(sizes), blocks, values, 1.0)
        wide, beside = (left, values[1]) if {*left.axes} - {*right.axes} else (right, values[0])
        over = tuple(place for place, axis in enumerate(axes) if axis in summed)
        cap = np.broadcast_to(wide.block(wide.cap, axes).max(axis=over, keepdims=True), sizes).reshape(-1)
        reach = 1.0 if share and wide is right else math.inf if many is None else many * self._peak(beside)
        known = math.isfinite(reach) and bool(np.isfinite(cap).all())
        repeated = left.repeated | right.repeated
        return self._put(node, Layout.over(axes, sizes, made, cap * reach if known else np.full(1, math.inf), repeated))

    def _peak(self, value: ir.Value) -> float:
        array = whole(value)
        return self.high(value) if array is None else float(np.abs(array.astype(np.float64)).max(initial=0.0))

    def _multiply(self, made: Ints, both: Sequence[Ints], values: tuple[ir.Value, ir.Value], sign: float) -> None:
        """The quieter one is pinned where nothing says which may be scaled."""
        one, other = both
        if sign > 0 and self.high(values[0]) < self.high(values[1]):
            one, other = other, one
        self.atoms.product(made, one, other, sign)


def _is_share(view: View, value: ir.Value | None) -> bool:
    """Whether sizes along the last axis are no more than 1 in all: a softmax, or 0 where that is NaN."""
    node = _maker(value)
    while node is not None and node.op_type == "Where":
        zeros = [view.scalar(each) == 0.0 for each in node.inputs[1:]]
        node = _maker(node.inputs[2 if zeros[0] else 1]) if any(zeros) else None
    if node is None or node.op_type != "Softmax":
        return False
    rank, axis = view.rank(node.outputs[0]), attribute(node, "axis", -1 if view.model.opset() >= _ONE_AXIS else 1)
    return rank is not None and axis % rank == rank - 1


def _maker(value: ir.Value | None) -> ir.Node | None:
    found = behind(value)
    node = found.producer() if found is not None else None
    return node if node is not None and not node.domain else None
