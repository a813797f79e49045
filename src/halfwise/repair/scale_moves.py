"""What lets a power of two pass: operators that move, select, pool or reduce, and those that are linear in a sign."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from halfwise.model.patterns.view import attribute
from halfwise.repair.extents import whole_numbers
from halfwise.repair.graph_edit import is_constant
from halfwise.repair.scale_atoms import Weights
from halfwise.repair.scale_blocks import blocks_of
from halfwise.repair.scale_layout import Layout, common
from halfwise.repair.scale_reshape import cut
from halfwise.repair.scale_walk import ScaleWalk, count

__all__ = ["COMPARES", "SAME", "ScaleMoves"]

SAME = (
    "Relu LeakyRelu Identity Neg Abs Dropout MaxPool AveragePool GlobalAveragePool GlobalMaxPool Resize Upsample Cast"
)
COMPARES = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})
_GROWS = frozenset({"Resize", "Upsample"})  # cubic interpolation overshoots
_REARRANGES = frozenset({"DepthToSpace", "SpaceToDepth"})
_ELEMENTS = frozenset({"GatherElements", "ScatterElements"})


class ScaleMoves(ScaleWalk):
    """f(2^k x) = 2^k f(x), channel by channel or with one k for the whole tensor."""

    def _same(self, node: ir.Node) -> bool:
        value = self._data(node)
        if value is None or any(output.uses() for output in node.outputs[1:] if output.dtype is ir.DataType.FLOAT):
            return False
        if attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
            return False
        if node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None:
            return False
        layout = self._read(value)
        if "Pool" in node.op_type or node.op_type in _GROWS:  # neighbours along every axis from the third on
            layout = self._kept(layout, (0, 1))
        return self._put(node, layout, capped=node.op_type not in _GROWS)

    def _compare(self, node: ir.Node) -> bool:
        """Which of two is larger is so of their multiples by one number, too, and what is above 0 of any."""
        values = [value for value in node.inputs if value is not None and self.view.scalar(value) != 0.0]
        if any(value.dtype is not ir.DataType.FLOAT or is_constant(value) for value in values):
            return False
        if len(values) == 2:
            one, other = (self._uniform(value).atoms for value in values)
            self.atoms.tie(one, other)
        return True

    def _mixed(self, node: ir.Node) -> bool:
        value = self._data(node)
        others = [each for each in node.inputs[1:] if each is not None and each.dtype is ir.DataType.FLOAT]
        if value is None or not all(is_constant(each) for each in others):  # a window of a transform
            return False
        return self._put(node, self._uniform(value), capped=node.op_type in _REARRANGES)

    def _zeros(self, node: ir.Node) -> bool:
        """They have any power, channel by channel."""
        filled, dims = attribute(node, "value", None), self.extents.whole(node.outputs[0])
        if filled is not None and np.any(filled.numpy()):
            return False
        size = (dims[-1] if dims else None) or 1
        axis = len(dims) - 1 if dims and size > 1 else None
        return self._write(node, axis, self.atoms.fresh(size), np.zeros(size))

    def _expand(self, node: ir.Node) -> bool:
        """A constant that is repeated, such as the token of a class, makes its own scale."""
        value, rank, extents = node.inputs[0], self.view.rank(node.outputs[0]), self.extents.whole(node.outputs[0])
        if value is None or value.dtype is not ir.DataType.FLOAT:
            return False
        if not is_constant(value):  # what is of more than 1 element along an axis, is as long there afterwards
            return self._put(node, self._uniform(value) if rank is None else self._in(value, rank))
        own = self.extents.whole(value)
        along = rank is not None and own and extents and own[-1] == extents[-1] != 1
        layout = self._source(node, 0, value, [len(own) - 1] if along and own else [])
        return self._put(node, layout.moved((rank or 0) - len(own or ())))

    def _source(self, node: ir.Node, slot: int, value: ir.Value, axes: Sequence[int]) -> Layout:
        """A constant that moves: it takes any power of two, channel by channel along some axes."""
        assert value.const_value is not None
        shape = value.const_value.shape.numpy()
        sizes = [shape[axis] for axis in axes]
        square, peak, _ = (np.reshape(each, -1) for each in blocks_of(value, tuple(axes)))
        layout = Layout.over(axes, sizes, self.atoms.fresh(math.prod(sizes)), peak)
        spread = layout.shape(len(shape)) or (1,) * len(shape)
        self.weights.append(Weights(node, slot, layout.atoms, spread, square[:, None], peak[:, None]))
        return layout

    def _tile(self, node: ir.Node) -> bool:
        """What is repeated has its unknowns again."""
        value, times = self._data(node), self._integers(node, 1, "repeats")
        if value is None:
            return False
        layout = self._read(value)
        if times is None:
            return self._put(node, self._as_one(layout))
        for axis, size in zip(layout.axes, layout.sizes, strict=True):
            layout = layout.taken(axis, np.tile(np.arange(size), times[axis]))
        return self._put(node, layout)

    def _prelu(self, node: ir.Node) -> bool:
        value = self._data(node)
        slope = node.inputs[1] if len(node.inputs) > 1 else None
        if value is None or not is_constant(slope):
            return False
        return self._put(node, self._read(value), capped=False)

    def _transpose(self, node: ir.Node) -> bool:
        """A constant that is turned, such as a table that is the last weight, too, makes its own scale."""
        value, rank = node.inputs[0], self.view.rank(node.inputs[0])
        if value is None or value.dtype is not ir.DataType.FLOAT:
            return False
        order = list(attribute(node, "perm", None) or range(rank or 0)[::-1])
        if is_constant(value):
            layout = self._source(node, 0, value, order[-1:])
            return self._put(node, layout.at([order.index(axis) for axis in layout.axes]))
        layout = self._read(value)
        if rank is None:  # that nobody knows: one unknown for all of it
            return self._put(node, self._as_one(layout))
        return self._put(node, layout.at([order.index(axis) for axis in layout.axes]))

    def _reshape(self, node: ir.Node) -> bool:
        """Axes may be split and merged; what cannot be told apart any more is tied together."""
        value = self._data(node)
        if value is None:
            return False
        layout, after = self._read(value), self.extents.of(node.outputs[0])
        before = self.extents.of(value)
        if not layout.axes or before is None or after is None:
            return self._put(node, self._as_one(layout))
        way = cut(layout, before, after)
        passing = {way.sources[place] for place in way.told}
        parts = [place for place, source in enumerate(way.sources) if source in passing]
        layout = self._kept(layout, passing)
        layout = Layout(tuple(parts), tuple(way.sizes[i] for i in parts), layout.atoms, layout.cap)
        reached = sorted({way.targets[place] for place in way.told})
        spread = [i for i, axis in enumerate(way.targets) if i in way.told or axis in {*reached} - way.repeated]
        layout = self._spread(self._kept(layout, way.told), spread, [way.sizes[place] for place in spread])
        sizes = [math.prod(way.sizes[place] for place in spread if way.targets[place] == axis) for axis in reached]
        return self._put(node, Layout.over(reached, sizes, layout.atoms, layout.cap, way.repeated))

    def _reduce(self, node: ir.Node) -> bool:
        value = self._data(node)
        axes = self.view.axes(node)
        if value is None:
            return False
        layout, dims = self._read(value), self.extents.whole(value)
        if axes is None or min(axes, default=0) < 0:
            layout = self._as_one(layout)
        else:
            layout = self._kept(layout, {*layout.axes} - set(axes))
            if not attribute(node, "keepdims", 1):
                layout = layout.at([axis - sum(each < axis for each in axes) for axis in layout.axes])
        many: int | None = 1  # of a mean or an extreme none is larger than what it is of
        if node.op_type in ("ReduceSum", "ReduceL1", "ReduceL2"):
            many = None if axes is None or dims is None else count([dims[each] for each in axes])
        if many is None:
            return self._put(node, layout, capped=False)
        return self._put(node, replace(layout, cap=layout.cap * max(many, 1)))

    def _concat(self, node: ir.Node) -> bool:
        """Along the axis that is joined each part keeps its unknowns; along others they are the same in all parts."""
        axis, rank = attribute(node, "axis", 0), self.view.rank(node.outputs[0])
        if rank is None or any(value is None or value.dtype is not ir.DataType.FLOAT for value in node.inputs):
            return False
        axis %= rank
        values = [value for value in node.inputs if value is not None]
        moving = [self._read(value) for value in values if not is_constant(value)]
        if not moving:
            return False
        lengths = [(self.extents.whole(value) or [None] * rank)[axis] for value in values]
        counts = [size for size in lengths if size is not None]
        axes, sizes = common(moving, None, axis)
        if len(counts) < len(values) or not (any(axis in each.axes for each in moving) or not axes):
            parts = self._all_along([self._part(node, slot, axes) for slot in range(len(values))], axes, sizes)
            for part in parts[1:]:
                self.atoms.tie(part.atoms, parts[0].atoms)
            return self._put(node, replace(parts[0], cap=np.max([part.cap for part in parts], axis=0)))
        axes, place = sorted([*axes, axis]), sum(each < axis for each in axes)
        shapes = [[*sizes[:place], many, *sizes[place:]] for many in counts]
        parts = [self._spread(self._part(node, slot, axes), axes, shape) for slot, shape in enumerate(shapes)]
        atoms, cap = (
            np.concatenate([np.reshape(each, shape) for each, shape in zip(given, shapes, strict=True)], place)
            for given in ([part.atoms for part in parts], [part.cap for part in parts])
        )
        repeated = frozenset().union(*(part.repeated for part in parts)) - {axis}
        return self._put(node, Layout.over(axes, atoms.shape, atoms.reshape(-1), cap.reshape(-1), repeated))

    def _part(self, node: ir.Node, slot: int, axes: Sequence[int]) -> Layout:
        value = node.inputs[slot]
        assert value is not None
        return self._source(node, slot, value, axes) if is_constant(value) else self._read(value)

    def _split(self, node: ir.Node) -> bool:
        value = self._data(node)
        if value is None:
            return False
        layout, rank = self._read(value), self.view.rank(value)
        axis, start = (attribute(node, "axis", 0) % rank if rank else -1), 0
        lengths = [
            (self.extents.whole(output) or [None] * (rank or 0))[axis] if rank else None for output in node.outputs
        ]
        counts = [size for size in lengths if size is not None]
        if len(counts) < len(lengths) or sum(counts) != layout.size(axis):
            layout = self._kept(layout, {*layout.axes} - {axis}) if rank else self._as_one(layout)
        for output, size in zip(node.outputs, lengths, strict=True):
            part = layout
            if axis in layout.axes and size is not None:
                part, start = layout.taken(axis, np.arange(start, start + size)), start + size
            self.layouts[output] = replace(part, cap=np.minimum(part.cap, self.high(output)))
        return True

    def _slice(self, node: ir.Node) -> bool:
        value = self._data(node)
        if value is None:
            return False
        layout, rank = self._read(value), self.view.rank(value)
        given = [self._integers(node, slot, name) for slot, name in enumerate(("starts", "ends", "axes", "steps"), 1)]
        starts, ends, axes, steps = given
        if axes is None and starts is not None and len(node.inputs) < 4:
            axes = list(range(len(starts)))
        if rank is None or axes is None:
            return self._put(node, self._as_one(layout))
        axes, dims = [axis % rank for axis in axes], self.extents.whole(node.outputs[0]) or [None] * rank
        if starts is None or ends is None or (steps is None and len(node.inputs) > 4):
            return self._put(node, self._kept(layout, {*layout.axes} - set(axes)))
        for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
            if axis in layout.repeated:
                layout = self._kept(layout, {*layout.axes} - {axis})
            if axis not in layout.axes:
                continue
            low = -layout.size(axis) - 1
            chosen = np.arange(layout.size(axis))[slice(max(start, low), None if end < low + 1 else end, step)]
            same = dims[axis] in (None, len(chosen))
            layout = layout.taken(axis, chosen) if same else self._kept(layout, {*layout.axes} - {axis})
        return self._put(node, layout)

    def _integers(self, node: ir.Node, slot: int, name: str) -> list[int] | None:
        """Of an attribute, or of an input that is constant or computed of known dimensions."""
        named = attribute(node, name, None)
        if named is not None:
            return [int(each) for each in named]
        return whole_numbers(self.extents.entries(node.inputs[slot])) if slot < len(node.inputs) else None

    def _gather(self, node: ir.Node) -> bool:
        value, indices = self._data(node), node.inputs[1]
        rank, index_rank = self.view.rank(value), self.view.rank(indices)
        if value is None:
            return False
        layout = self._read(value)
        if rank is None or index_rank is None:
            return self._put(node, self._as_one(layout))
        axis, chosen = attribute(node, "axis", 0) % rank, self.view.constant(indices)
        if axis in {*layout.axes} - layout.repeated and chosen is not None and chosen.ndim < 2:
            layout = layout.taken(axis, chosen.reshape(-1))
            if chosen.ndim == 1:
                return self._put(node, layout)
        layout = self._kept(layout, {*layout.axes} - {axis})
        return self._put(node, layout.at([each + (index_rank - 1 if axis < each else 0) for each in layout.axes]))

    def _places(self, node: ir.Node) -> bool:
        """What is gathered element by element, or by places of several axes."""
        value, rank = self._data(node), self.view.rank(node.inputs[0])
        made, chosen = self.view.rank(node.outputs[0]), None if rank is None else self._chosen_axes(node, rank)
        if value is None or rank is None or made is None or chosen is None:
            return False
        layout = self._read(value)
        kept = self._kept(layout, {*layout.axes} - chosen).moved(made - rank)
        dims = self.extents.whole(node.outputs[0]) or [None] * made
        return self._put(node, self._kept(kept, [axis for axis in kept.axes if dims[axis] in (None, kept.size(axis))]))

    def _chosen_axes(self, node: ir.Node, rank: int) -> set[int] | None:
        """Those of what is gathered from, or scattered into, that indices choose from; None where nobody knows."""
        if node.op_type in _ELEMENTS:
            return {attribute(node, "axis", 0) % rank}
        many = (self.extents.whole(node.inputs[1]) or [None])[-1] if node.inputs[1] is not None else None
        return None if many is None or attribute(node, "batch_dims", 0) else {*range(many)}

    def _chosen_often(self, node: ir.Node, chosen: Collection[int]) -> int | None:
        """How many values a scatter may put at one place, at most."""
        assert node.inputs[1] is not None
        sizes = self.extents.whole(node.inputs[1]) or [None]
        return count([sizes[axis] for axis in chosen] if node.op_type in _ELEMENTS else sizes[:-1])

    def _pad(self, node: ir.Node) -> bool:
        value = self._data(node)
        if value is None:
            return False
        filled = node.inputs[2] if len(node.inputs) > 2 else None
        number = self.view.scalar(filled) if filled is not None else float(attribute(node, "value", 0.0))
        if attribute(node, "mode", "constant") not in (b"constant", "constant") or number == 0.0:
            after, before = self.extents.whole(node.outputs[0]), self.extents.whole(value)
            pairs = enumerate(zip(after or (), before or (), strict=False))
            same = [axis for axis, (one, other) in pairs if one is not None and one == other]
            return self._put(node, self._kept(self._read(value), same))
        return False
