"""What lets a power of two pass: operators that move, select, pool or reduce, and those that are linear in a sign."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from halfwise.model.patterns.view import attribute
from halfwise.repair.graph_edit import is_constant
from halfwise.repair.scale_atoms import Layout, Weights
from halfwise.repair.scale_blocks import blocks_of
from halfwise.repair.scale_walk import ScaleWalk, count, sizes

__all__ = ["SAME", "ScaleMoves"]

SAME = (
    "Relu LeakyRelu Identity Neg Abs Dropout MaxPool AveragePool GlobalAveragePool GlobalMaxPool Resize Upsample Cast"
)
_GROWS = frozenset({"Resize", "Upsample"})  # cubic interpolation overshoots


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
        mixes = "Pool" in node.op_type or node.op_type in _GROWS  # neighbours along every axis from the third on
        if mixes and layout.axis not in (None, 0, 1):
            layout = self._uniform(value)
        return self._keep(node, layout, layout.axis, capped=node.op_type not in _GROWS)

    def _mixed(self, node: ir.Node) -> bool:
        value = self._data(node)
        return value is not None and self._keep(node, self._uniform(value), None)

    def _expand(self, node: ir.Node) -> bool:
        """A constant that is repeated, such as the token of a class, makes its own scale."""
        value, rank, extents = node.inputs[0], self.view.rank(node.outputs[0]), sizes(node.outputs[0])
        if value is None or not is_constant(value) or value.dtype is not ir.DataType.FLOAT:
            return self._mixed(node)
        own = sizes(value)
        along = rank is not None and own and extents and own[-1] == extents[-1] != 1
        layout = self._source(node, 0, value, len(own) - 1 if along and own else None)
        return self._write(node, rank - 1 if along and rank else None, layout.atoms, layout.cap)

    def _source(self, node: ir.Node, slot: int, value: ir.Value, axis: int | None) -> Layout:
        """A constant that moves: it takes any power of two, channel by channel along an axis."""
        square, peak, _ = blocks_of(value, () if axis is None else (axis,))
        square, peak, rank = np.reshape(square, -1), np.reshape(peak, -1), len(sizes(value) or ())
        made = self.atoms.fresh(len(peak))
        shape = (1,) * rank if axis is None else (len(peak),) + (1,) * (rank - axis - 1)
        self.weights.append(Weights(node, slot, made, shape, square[:, None], peak[:, None]))
        return Layout(axis, made, peak)

    def _prelu(self, node: ir.Node) -> bool:
        value = self._data(node)
        slope = node.inputs[1] if len(node.inputs) > 1 else None
        if value is None or not is_constant(slope):
            return False
        layout = self._read(value)
        return self._keep(node, layout, layout.axis, capped=False)

    def _transpose(self, node: ir.Node) -> bool:
        """A constant that is turned, such as a table that is the last weight, too, makes its own scale."""
        value, rank = node.inputs[0], self.view.rank(node.inputs[0])
        if value is None or value.dtype is not ir.DataType.FLOAT:
            return False
        order = list(attribute(node, "perm", None) or range(rank or 0)[::-1])
        if is_constant(value):
            layout = self._source(node, 0, value, order[-1] if order else None)
            return self._write(node, len(order) - 1 if order else None, layout.atoms, layout.cap)
        layout = self._read(value)
        if layout.axis is None or layout.axis not in order:  # a rank that nobody knows: one unknown for all of it
            return self._keep(node, self._uniform(value), None)
        return self._keep(node, layout, order.index(layout.axis))

    def _reshape(self, node: ir.Node) -> bool:
        """In row-major order a channel stays one along an axis that as many elements follow; several axes may merge."""
        value = self._data(node)
        if value is None:
            return False
        layout = self._read(value)
        before, after = sizes(value), sizes(node.outputs[0])
        if layout.axis is not None and before is not None and after is not None:
            inner = count(before[layout.axis + 1 :])
            for axis in range(len(after)):
                behind, size = count(after[axis + 1 :]), after[axis]
                if inner is None or behind is None or not isinstance(size, int) or size == 1 < len(layout.atoms):
                    continue
                if (behind, size) == (inner, len(layout.atoms)):
                    return self._keep(node, layout, axis)
                if behind * size == inner * len(layout.atoms) and inner % max(behind, 1) == 0:
                    times = inner // behind
                    return self._write(node, axis, np.repeat(layout.atoms, times), np.repeat(layout.cap, times))
        return self._keep(node, self._uniform(value), None)

    def _reduce(self, node: ir.Node) -> bool:
        value = self._data(node)
        axes = self.view.axes(node)
        if value is None:
            return False
        layout, axis = self._read(value), None
        if layout.axis is not None and (axes is None or layout.axis in axes or min(axes) < 0):
            layout = self._uniform(value)
        elif layout.axis is not None and axes is not None:
            axis = layout.axis - (0 if attribute(node, "keepdims", 1) else sum(each < layout.axis for each in axes))
        many: int | None = 1  # of a mean or an extreme none is larger than what it is of
        if node.op_type in ("ReduceSum", "ReduceL1", "ReduceL2"):
            dims = sizes(value)
            many = None if axes is None or dims is None else count([dims[each] for each in axes])
        return self._write(node, axis, layout.atoms, None if many is None else layout.cap * max(many, 1))

    def _concat(self, node: ir.Node) -> bool:
        axis, rank = attribute(node, "axis", 0), self.view.rank(node.outputs[0])
        if rank is None or any(value is None or value.dtype is not ir.DataType.FLOAT for value in node.inputs):
            return False
        axis %= rank
        values = [value for value in node.inputs if value is not None]
        axes = {self._read(value).axis for value in values if not is_constant(value)}
        if not axes:
            return False
        own = axis if axes <= {None, axis} else next(iter(axes)) if len(axes) == 1 else None
        found = [
            self._source(node, slot, value, own) if is_constant(value) else self._read(value)
            for slot, value in enumerate(values)
        ]
        extents = [(sizes(value) or [None] * rank)[axis] for value in values]
        if all(layout.axis in (None, axis) for layout in found) and all(isinstance(size, int) for size in extents):
            pairs = [(layout, s) for layout, s in zip(found, extents, strict=True) if isinstance(s, int)]
            parts = [self._spread(layout, axis, size) for layout, size in pairs]
            return self._write(
                node, axis, np.concatenate([p.atoms for p in parts]), np.concatenate([p.cap for p in parts])
            )
        if len({(layout.axis, len(layout.atoms)) for layout in found}) > 1:
            found = [self._as_one(layout) for layout in found]
        for layout in found[1:]:
            self.atoms.tie(layout.atoms, found[0].atoms)
        cap = np.max([layout.cap for layout in found], axis=0)
        return self._write(node, found[0].axis if found[0].axis != axis else None, found[0].atoms, cap)

    def _split(self, node: ir.Node) -> bool:
        value = self._data(node)
        if value is None:
            return False
        layout = self._read(value)
        rank = self.view.rank(value)
        axis = attribute(node, "axis", 0) % rank if rank else None
        start = 0
        extents = [(sizes(output) or [None] * (rank or 0))[axis or 0] for output in node.outputs] if rank else [None]
        if layout.axis == axis is not None and sum(s for s in extents if isinstance(s, int)) != len(layout.atoms):
            layout = self._uniform(value)
        for output, size in zip(node.outputs, extents, strict=False):
            cut = slice(None)
            if layout.axis == axis is not None and isinstance(size, int):
                cut, start = slice(start, start + size), start + size
            cap = np.minimum(layout.cap[cut], self.high(output))
            self.layouts[output] = Layout(layout.axis, layout.atoms[cut], cap)
        for output in node.outputs[len(extents) :]:
            self.layouts[output] = self._uniform(value)
        return True

    def _slice(self, node: ir.Node) -> bool:
        value = self._data(node)
        if value is None:
            return False
        layout = self._read(value)
        rank = self.view.rank(value)
        if layout.axis is None or rank is None:
            return self._keep(node, self._uniform(value), None)
        given = [self._integers(node, slot, name) for slot, name in enumerate(("starts", "ends", "axes", "steps"), 1)]
        starts, ends, axes, steps = given
        if starts is None or ends is None:
            return self._keep(node, self._uniform(value), None)
        axes = axes if axes is not None else list(range(len(starts)))
        steps = steps if steps is not None else [1] * len(starts)
        chosen = np.arange(len(layout.atoms))
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            if axis % rank == layout.axis:
                low = -len(chosen) - 1
                chosen = chosen[slice(max(start, low), None if end < low + 1 else end, step)]
        if (sizes(node.outputs[0]) or [None] * rank)[layout.axis] != len(chosen):
            return self._keep(node, self._uniform(value), None)
        return self._write(node, layout.axis, layout.atoms[chosen], layout.cap[chosen])

    def _integers(self, node: ir.Node, slot: int, name: str) -> list[int] | None:
        named = attribute(node, name, None)
        if named is not None:
            return [int(each) for each in named]
        array = self.view.constant(node.inputs[slot]) if slot < len(node.inputs) else None
        return [int(each) for each in array.reshape(-1)] if array is not None else None

    def _gather(self, node: ir.Node) -> bool:
        value, indices = self._data(node), node.inputs[1]
        rank, index_rank = self.view.rank(value), self.view.rank(indices)
        if value is None:
            return False
        layout = self._read(value)
        if layout.axis is None or rank is None or index_rank is None:
            return self._keep(node, self._uniform(value), None)
        axis = attribute(node, "axis", 0) % rank
        if axis != layout.axis:
            return self._keep(node, layout, layout.axis + (index_rank - 1 if axis < layout.axis else 0))
        chosen = self.view.constant(indices)
        if chosen is None or chosen.ndim != 1:
            return self._keep(node, self._uniform(value), None)
        return self._write(node, axis, layout.atoms[chosen], layout.cap[chosen])

    def _pad(self, node: ir.Node) -> bool:
        value = self._data(node)
        if value is None:
            return False
        filled = node.inputs[2] if len(node.inputs) > 2 else None
        number = self.view.scalar(filled) if filled is not None else float(attribute(node, "value", 0.0))
        if attribute(node, "mode", "constant") not in (b"constant", "constant") or number == 0.0:
            layout, after, before = self._read(value), sizes(node.outputs[0]), sizes(value)
            same = layout.axis is not None and after and before and after[layout.axis] == before[layout.axis]
            layout = layout if same else self._uniform(value)
            return self._keep(node, layout, layout.axis)
        return False
