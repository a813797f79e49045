"""Follows powers of two through a graph: what lets them pass, what absorbs them, what has to see the values as are."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.families import NORMS, QUANTISERS, STEPS
from halfwise.model.model import Model
from halfwise.model.operator_slots import SHAPE_READERS
from halfwise.model.patterns.view import attribute
from halfwise.repair.graph_edit import is_constant, whole
from halfwise.repair.rule import Ranges
from halfwise.repair.scale_atoms import PINNED, Floats, Heard, Ints, Weights
from halfwise.repair.scale_blocks import HeldBlocks, LargeBlocks, blocks, blocks_of, is_large_in, stored
from halfwise.repair.scale_gates import is_gate
from halfwise.repair.scale_layout import Layout, blocks_along
from halfwise.repair.scale_moves import COMPARES, SAME
from halfwise.repair.scale_norms import norm_reach
from halfwise.repair.scale_own import own_handler
from halfwise.repair.scale_products import ScaleProducts
from halfwise.repair.scale_walk import bias_fits

__all__ = ["ScaleFlow"]

_Handlers = dict[str, Callable[[ir.Node], bool]]
_REDUCES = "ReduceMean ReduceSum ReduceMax ReduceMin ReduceL1 ReduceL2"
_EXPONENTS = 14  # of FP16's normal numbers


class ScaleFlow(ScaleProducts):
    """One walk over the main graph. Afterwards: `layouts` of its tensors, `weights` that may be scaled, `epsilons`
    (nodes whose epsilon grows with the square of what they read), `passed` (the nodes that powers of two pass).

    In front of the nodes in `fronts` and behind the values in `entries` a factor may be put, behind the graph inputs
    in `channels` and in front of the graph outputs in `ends` one for each channel."""

    def __init__(
        self,
        model: Model,
        ranges: Ranges,
        fronts: Collection[str] = (),
        entries: Collection[str] = (),
        channels: Collection[str] = (),
        ends: Collection[str] = (),
        *,
        rounds: bool = False,
    ) -> None:
        super().__init__(model, ranges, rounds=rounds)
        self.fronts, self.entries = frozenset(fronts), frozenset(entries)
        self.ends: list[tuple[ir.Node, Layout]] = []
        self.epsilons: list[tuple[ir.Node, Ints]] = []
        self.passed: list[tuple[ir.Node, Ints]] = []
        self._is_large = is_large_in(model)
        handlers: _Handlers = {  # not of this object: a cycle would keep its arrays
            **dict.fromkeys(SAME.split(), self._same),
            **dict.fromkeys(_REDUCES.split(), self._reduce),
            **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), self._reshape),
            **dict.fromkeys(("Add", "Sub", "Sum", "Max", "Min"), self._elementwise),
            **dict.fromkeys(("Mul", "Div"), self._product),
            **dict.fromkeys(NORMS, self._norm),
            **dict.fromkeys("DepthToSpace SpaceToDepth CumSum DFT STFT".split(), self._mixed),
            **dict.fromkeys(("ScatterElements", "ScatterND"), self._scatter),
            **dict.fromkeys(("LSTM", "GRU", "RNN"), self._recurrent),
            **dict.fromkeys(("GatherElements", "GatherND"), self._places),
            **dict.fromkeys(COMPARES, self._compare),
            "ConstantOfShape": self._zeros,
            **dict.fromkeys(("Pow", "Reciprocal", "ReduceSumSquare"), self._power),
            **dict.fromkeys(("Log", "Exp"), self._logarithm),
            "PRelu": self._prelu,
            "Clip": self._clip,
            "Pad": self._pad,
            "Expand": self._expand,
            "Tile": self._tile,
            "Where": self._where,
            "Transpose": self._transpose,
            "Concat": self._concat,
            "Split": self._split,
            "Slice": self._slice,
            "Gather": self._gather,
            **dict.fromkeys(("Conv", "ConvTranspose"), self._conv),
            "Gemm": self._gemm,
            "MatMul": self._matmul,
            "Einsum": self._einsum,
            "BatchNormalization": self._batch_norm,
            "Sqrt": self._sqrt,
        }
        for value in (each for each in model.graph.inputs if each.name in entries):
            self._entry(value)
        for value in (each for each in model.ir.graph.inputs if each.name in channels):
            self._channels(value)
        for number, node in enumerate(nodes := tuple(model.graph)):
            ranges.walked(number, len(nodes))  # to read all weights of a large model takes a minute
            self._visit(node, handlers)
        for value, layout in self.layouts.items():
            elsewhere = value.name not in channels and any(r.graph is not model.graph for r, _ in value.uses())
            maker = value.producer() if value.name in ends else None
            maker = maker if maker is not None and len(maker.outputs) == 1 else None
            if elsewhere or value.name not in ranges.high or (value.is_graph_output() and maker is None):
                self.atoms.pin(layout.atoms)
            elif maker is not None:
                self.ends.append((maker, self._exact(layout)))

    def with_ends(self, channels: Collection[str], ends: Collection[str]) -> ScaleFlow:
        """Another walk, which may scale these as well."""
        ends = [*(node.outputs[0].name or "" for node, _ in self.ends), *ends]
        entries = self.entries.difference(channels)
        return ScaleFlow(self.model, self.ranges, self.fronts, entries, channels, ends, rounds=self.rounds)

    @cached_property
    def place(self) -> dict[str, int]:
        """Of each node of the main graph."""
        return {node.name or "": index for index, node in enumerate(self.model.graph)}

    @cached_property
    def biases(self) -> dict[ir.Node, list[Weights]]:
        """What linear operators add."""
        found: dict[ir.Node, list[Weights]] = {}
        for weights in self.weights:
            if weights.soft and weights.slot == 2 and weights.node is not None:
                found.setdefault(weights.node, []).append(weights)
        return found

    # -- the walk -----------------------------------------------------------------------------------------------------

    def _visit(self, node: ir.Node, handlers: _Handlers) -> None:
        handler = own_handler(self, node) or (None if node.domain else handlers.get(node.op_type))
        if node.name in self.fronts:
            handler = self._front
        floats = node.outputs[0].dtype is ir.DataType.FLOAT or node.op_type in QUANTISERS | STEPS | COMPARES
        if node in self.arguments:
            self._restore(node)
        elif handler is not None and len(node.inputs) > 0 and floats and handler(node):
            made = [self.layouts[value].atoms for value in node.outputs if value in self.layouts]
            self.passed.append((node, np.concatenate([*made, np.zeros(0, np.int64)])))  # of a Split, one part alone
            if made:  # others make what has no power, such as a recurrent operator
                return
        elif node.op_type in SHAPE_READERS and not node.domain:
            return
        else:
            for value in filter(None, node.inputs):
                self.atoms.pin(self._read(value).atoms)
        if node.outputs[0].name in self.entries:
            self._entry(node.outputs[0])

    # -- elementwise --------------------------------------------------------------------------------------------------

    def _clip(self, node: ir.Node) -> bool:
        """Bounds are scaled with what they bound; a bound of 0 lets everything pass."""
        value = self._data(node)
        bounds = [(slot, node.inputs[slot]) for slot in (1, 2) if slot < len(node.inputs) and node.inputs[slot]]
        if value is None or "min" in node.attributes or "max" in node.attributes:
            return False
        numbers = [whole(bound) for _, bound in bounds]
        if any(number is None or number.size != 1 for number in numbers):
            return False
        layout = self._read(value)
        if any(np.any(number) for number in numbers if number is not None):
            layout = self._uniform(value)
            for (slot, _), number in zip(bounds, numbers, strict=True):
                assert number is not None
                self._offset(node, slot, number, layout, 0)
        return self._put(node, layout)

    def _where(self, node: ir.Node) -> bool:
        return self._elementwise(node, skip=1)

    def _scatter(self, node: ir.Node) -> bool:
        """Along the axes that indices choose from, all have the same power; what is added has it, too."""
        rank, reduction = self.view.rank(node.outputs[0]), str(attribute(node, "reduction", "none"))
        chosen = self._chosen_axes(node, rank) if rank is not None and reduction != "mul" else None
        if chosen is None or not self._elementwise(node, slots=(0, 2), lost=chosen):
            return False
        layout, many = self._read(node.outputs[0]), self._chosen_often(node, chosen) if reduction == "add" else 1
        return self._put(node, replace(layout, cap=layout.cap * (many or 1)), capped=many is not None)

    def _elementwise(
        self, node: ir.Node, skip: int = 0, slots: Collection[int] | None = None, lost: Collection[int] = ()
    ) -> bool:
        """All operands carry the same power of two, one along `lost` axes; constants among them are scaled."""
        out = node.outputs[0]
        rank = self.view.rank(out)
        given = [(slot, value) for slot, value in enumerate(node.inputs) if value is not None]
        operands = [(slot, value) for slot, value in given if (slot >= skip if slots is None else slot in slots)]
        if rank is None or any(value.dtype is not ir.DataType.FLOAT for _, value in operands):
            return False
        moving = [value for _, value in operands if not is_constant(value)]
        if not moving or any(self.view.rank(value) is None for value in moving):
            return False
        dims = [0 if axis in lost else size for axis, size in enumerate(self.extents.whole(out) or [None] * rank)]
        layouts = self._alike([self._in(value, rank) for value in moving], dims)
        constants = [(slot, array) for slot, value in operands if (array := whole(value)) is not None]
        layouts = [self._exact(layout) for layout in layouts] if constants else layouts
        for layout in layouts[1:]:
            self.atoms.tie(layout.atoms, layouts[0].atoms)
        caps = [layout.cap for layout in layouts]
        caps += [self._offset(node, slot, array, layouts[0], rank) for slot, array in constants]
        return self._put(node, replace(layouts[0], cap=np.sum(caps, axis=0)))

    def _offset(self, node: ir.Node, slot: int, array: NDArray[Any], layout: Layout, rank: int) -> Floats:
        """Note a constant that is added, or the like; returns how large it is in each channel."""
        square, peak = blocks_along(array, layout, rank)
        shape = layout.shape(rank) or (1,) * array.ndim
        self.weights.append(Weights(node, slot, layout.atoms, shape, square[:, None], peak[:, None], soft=True))
        return peak

    def _product(self, node: ir.Node) -> bool:
        left, right = node.inputs[0], node.inputs[1]
        rank = self.view.rank(node.outputs[0])
        if left is None or right is None or rank is None:
            return False
        if any(value.dtype is not ir.DataType.FLOAT for value in (left, right)):
            return False
        if is_constant(right) and not is_constant(left):
            return self._by_constant(node, left, 1, rank)
        if is_constant(left) and not is_constant(right):
            return self._by_constant(node, right, 0, rank)
        for gate, value in ((right, left), (left, right)):
            if is_gate(gate) and self.view.rank(value) == rank and (node.op_type == "Mul" or gate is right):
                self.atoms.pin(self._read(gate).atoms)
                return self._put(node, self._read(value), capped=False)
        return self._pair(node, left, right, rank)

    def _by_constant(self, node: ir.Node, value: ir.Value, slot: int, rank: int) -> bool:
        """x * c, x / c or c / x: c takes the difference of the powers of two in front and behind."""
        array = whole(node.inputs[slot])
        own = self.view.rank(value)
        assert array is not None
        at_end = value.is_graph_input() or node.outputs[0].is_graph_output()
        if own != rank or array.ndim > rank or (at_end and _is_factor(array)):
            return False
        wide = {rank - array.ndim + axis: size for axis, size in enumerate(array.shape) if size > 1}
        layout, dims = self._exact(self._read(value)), self.extents.whole(node.outputs[0]) or [None] * rank
        if not layout.axes and len(wide) == 1:
            layout = layout.spread([*wide], [*wide.values()])
        else:  # it becomes no larger than what it multiplies, and tells apart what it spans
            kept = [axis for axis in layout.axes if dims[axis] in (None, layout.size(axis))]
            layout = self._kept(layout, kept if set(wide) <= set(kept) else set(kept) & set(wide))
        square, peak = blocks_along(array, layout, rank)
        made = self.atoms.fresh(len(layout.atoms))
        shape = layout.shape(rank) or (1,) * array.ndim
        rows, columns, turns = made, layout.atoms, node.op_type == "Div" and slot == 0
        self.atoms.stand(made, layout.atoms, -1.0 if turns else 1.0)
        if turns:
            columns = self.atoms.inverse(layout.atoms)
        elif node.op_type == "Div":
            rows, columns = layout.atoms, made
        self.weights.append(Weights(node, slot, rows, shape, square[:, None], peak[:, None], columns[:, None], shape))
        made_of = replace(layout, atoms=made, cap=peak * layout.cap)
        return self._put(node, made_of, capped=node.op_type == "Mul")

    # -- linear operators ---------------------------------------------------------------------------------------------

    def _linear(
        self, node: ir.Node, slot: int, array: NDArray[Any], source: ir.Value, axes: tuple[int, int, int]
    ) -> bool:
        """`axes`: of the weight, its axis of outputs and of inputs; of the tensors, the axis of channels."""
        out, into, channels = axes
        if not bias_fits(node, array.shape[out]):
            return False
        layout = self._along(source, channels, array.shape[into])
        made = self.atoms.fresh(array.shape[out])
        row, column = (tuple(array.shape[i] if i == at else 1 for i in range(array.ndim)) for at in axes[:2])
        cap, large = layout.cap, node.inputs[slot] if self._is_large(array) else None
        of = LargeBlocks(large, out, into) if large is not None else HeldBlocks.of(array, out, into)
        lines = of.heard(cap) if np.isfinite(cap).all() else None
        heard = None if lines is None else Heard(lines.square, cap**2)
        self._note(node, slot, made, (row, column), layout.atoms[None], channels, of, heard)
        return self._biased(node, made, channels, np.full(1, math.inf) if lines is None else lines.total)

    def _note(
        self, node: ir.Node, slot: int, rows: Ints, shapes: tuple[tuple[int, ...], tuple[int, ...]], columns: Ints,
        axis: int, of: LargeBlocks | HeldBlocks, heard: Heard | None = None,
    ) -> None:  # fmt: skip
        large, held = (of, (np.zeros((0, 0)),) * 2) if isinstance(of, LargeBlocks) else (None, of[:2])
        made = Weights(node, slot, rows, shapes[0], *held, columns, shapes[1], False, node.outputs[0], axis)
        self.weights.append(replace(made, large=large, heard=heard))

    def _biased(self, node: ir.Node, made: Ints, axis: int, cap: Floats) -> bool:
        array = whole(node.inputs[2]) if len(node.inputs) > 2 else None
        if array is not None:
            cap = cap + self._offset(node, 2, array, Layout.along(0, made, cap), 1)
        return self._write(node, axis, made, cap)

    def _conv(self, node: ir.Node) -> bool:
        value, array = self._data(node), stored(node.inputs[1])
        if value is None or array is None or array.ndim < 3:
            return False
        groups = int(attribute(node, "group", 1))
        turned = node.op_type == "ConvTranspose"
        if groups == 1:
            return self._linear(node, 1, array, value, (1, 0, 1) if turned else (0, 1, 1))
        if turned or not bias_fits(node, array.shape[0]):
            return False
        outputs, inner = array.shape[:2]
        layout = self._along(value, 1, inner * groups)
        square, peak, total = blocks(array, (0, 1))
        made = self.atoms.fresh(outputs)
        columns = np.repeat(layout.atoms.reshape(groups, inner), outputs // groups, axis=0)
        caps = np.repeat(layout.cap.reshape(groups, inner), outputs // groups, axis=0)
        ones = (1,) * (array.ndim - 2)
        shapes = (outputs, 1, *ones), (outputs, inner, *ones)
        self._note(node, 1, made, shapes, columns, 1, HeldBlocks(square, peak, total))
        with np.errstate(invalid="ignore"):
            cap = np.nan_to_num((total * caps).sum(axis=1), nan=math.inf, posinf=math.inf)
        return self._biased(node, made, 1, cap)

    def _gemm(self, node: ir.Node) -> bool:
        value, array = self._data(node), stored(node.inputs[1])
        if value is None or array is None or array.ndim != 2 or attribute(node, "transA", 0):
            return False
        if any(abs(float(attribute(node, gain, 1.0))) > 1.0 for gain in ("alpha", "beta")):  # the caps hold below
            return False
        return self._linear(node, 1, array, value, (0, 1, 1) if attribute(node, "transB", 0) else (1, 0, 1))

    def _matmul(self, node: ir.Node) -> bool:
        value, other = node.inputs[0], node.inputs[1]
        array, rank = stored(other), self.view.rank(value)
        if value is None or other is None or rank is None or value.dtype is not ir.DataType.FLOAT:
            return False
        if array is not None and array.ndim == 2 and rank >= 2 and not is_constant(value):
            return self._linear(node, 1, array, value, (1, 0, rank - 1))
        if array is not None or other.dtype is not ir.DataType.FLOAT or is_constant(other):
            return False
        if is_gate(value):
            self.atoms.pin(self._read(value).atoms)
        return self._matrices(node, value, other)

    def _gather(self, node: ir.Node) -> bool:
        """A table that is looked up makes its own scale."""
        value, table = node.inputs[0], stored(node.inputs[0])
        if value is None or table is None:
            return super()._gather(node)
        rank = self.view.rank(node.outputs[0])
        axis = attribute(node, "axis", 0) % max(table.ndim, 1)
        if rank is None or table.ndim < 2 or axis == table.ndim - 1 or value.dtype is not ir.DataType.FLOAT:
            return False
        square, peak, _ = blocks_of(value, (table.ndim - 1,))
        made = self.atoms.fresh(table.shape[-1])
        shape = (1,) * (table.ndim - 1) + (table.shape[-1],)
        self.weights.append(Weights(node, 0, made, shape, square[:, None], peak[:, None]))
        return self._write(node, rank - 1, made, peak)

    def _batch_norm(self, node: ir.Node) -> bool:
        """(x - mean) * scale / deviation + bias: the mean goes with the input, scale and bias with the output."""
        value = self._data(node)
        arrays = [whole(given) for given in node.inputs[1:5]]
        if value is None or len(arrays) < 4 or any(array is None or array.ndim != 1 for array in arrays):
            return False
        if attribute(node, "training_mode", 0) or any(output.uses() for output in node.outputs[1:]):
            return False
        scale, bias, mean, variance = (array for array in arrays if array is not None)
        layout = self._along(value, 1, len(scale))
        made = self.atoms.fresh(len(scale))
        size = (len(scale),)
        peak = np.abs(scale.astype(np.float64))
        self._note(node, 1, made, (size, size), layout.atoms[:, None], 1, HeldBlocks.of(scale[:, None], 0, 1))
        deviation = np.sqrt(variance.astype(np.float64) + float(attribute(node, "epsilon", 1e-5)))
        shift = self._offset(node, 2, bias, Layout.along(0, made, peak), 1)
        moved = self._offset(node, 3, mean, Layout.along(0, layout.atoms, peak), 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            cap = np.nan_to_num((layout.cap + moved) * peak / deviation + shift, nan=math.inf, posinf=math.inf)
        return self._write(node, 1, made, cap)

    def _norm(self, node: ir.Node) -> bool:
        """Scale-invariant: what is read may carry any one power of two as long as epsilon carries its square."""
        value = self._data(node)
        scale = whole(node.inputs[1]) if len(node.inputs) > 1 else None
        rank = self.view.rank(value)
        if value is None or scale is None or rank is None or any(output.uses() for output in node.outputs[1:]):
            return False
        self.epsilons.append((node, self._uniform(value).atoms))
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        by_channel = node.op_type in ("InstanceNormalization", "GroupNormalization")
        axis = 1 if by_channel else rank - 1
        extents = self.extents.whole(value)
        if extents is None or scale.shape != (extents[axis],) or (bias is not None and not is_constant(bias)):
            return self._write(node, None, np.array([PINNED]))
        made = self.atoms.fresh(len(scale))
        square, peak, _ = blocks(scale, (0,))
        self.weights.append(Weights(node, 1, made, (len(scale),), square[:, None], peak[:, None]))
        cap = peak * norm_reach(node, extents)
        if bias is not None:
            array = whole(bias)
            assert array is not None
            cap = cap + self._offset(node, 2, array, Layout.along(0, made, peak), 1)
        return self._write(node, axis, made, cap)


def _is_factor(array: NDArray[Any]) -> bool:
    """Powers of two, some too large or small for FP16: what stands at an end of the graph for values to come out."""
    mantissas, exponents = np.frexp(np.abs(array))
    return array.size > 1 and bool((mantissas == 0.5).all() and (np.abs(exponents - 1) > _EXPONENTS).any())
