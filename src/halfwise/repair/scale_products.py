"""What powers of two become in products, quotients, powers, roots and logarithms, in front of recurrent operators, and
where a factor may be put."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.view import View
from halfwise.repair.rule import Ranges
from halfwise.repair.scale_atoms import PINNED, TYPICAL, Ints, Weights
from halfwise.repair.scale_blocks import blocks, stored
from halfwise.repair.scale_gates import gate_arguments
from halfwise.repair.scale_layout import Layout, common
from halfwise.repair.scale_matrices import ScaleMatrices
from halfwise.repair.scale_walk import LOUD

__all__ = ["ScaleProducts", "rounds_anew"]

_EXACT = (2.0, 3.0)  # powers that keep the bits of what was scaled


class ScaleProducts(ScaleMatrices):
    """Afterwards: `roots` (square roots, which may be scaled back right behind), `terms` (logarithms, behind which the
    logarithm of what they read of a power is taken off, and exponentials, in front of which that of what they make is
    added). `rounds`: what only rounds anew may be passed, too: powers, logarithms, exponentials; `rounded` names it."""

    def __init__(self, model: Model, ranges: Ranges, *, rounds: bool = False) -> None:
        super().__init__(model, ranges)
        self.rounds = rounds
        self.rounded: set[str] = set()
        self.roots: list[ir.Node] = []
        self.terms: list[tuple[ir.Node, Ints]] = []

    @cached_property
    def arguments(self) -> dict[ir.Node, ir.Value]:
        """Steps to gates, and what they start from, where one of them or that is too large: they read it as it is."""
        found: dict[ir.Node, ir.Value] = {}
        for value in (output for node in self.model.graph for output in node.outputs):
            steps = gate_arguments(value) if value.dtype is ir.DataType.FLOAT else []
            made = [value, *(output for step in steps for output in step.outputs)]
            if any(self.ranges.high.get(each.name or "", 0.0) > LOUD for each in made):
                found = dict.fromkeys(steps, value) | found
        return found

    def _restore(self, node: ir.Node) -> None:
        """A factor in front takes back what the value that overflows carries."""
        value = self.arguments[node]
        if value not in node.inputs:
            return
        layout = self._exact(self._read(value))
        shape, ones = layout.shape(self.view.rank(value) or 0), np.ones((len(layout.atoms), 1))
        rows, columns = np.full(len(layout.atoms), PINNED), layout.atoms[:, None]
        self.weights.append(Weights(node, 0, rows, shape, ones, ones, columns, shape, front=True, read=value))

    def _front(self, node: ir.Node) -> bool:
        """What is read stays as it is; the node reads a multiple of its first operand."""
        value = node.inputs[0]
        assert value is not None
        for operand in node.inputs:
            if operand is not None:
                self.atoms.pin(self._read(operand).atoms)
        read = self._factor_on(value, node)
        made = read
        if node.op_type in ("Pow", "ReduceSumSquare"):
            made = self.atoms.fresh(1)
            self.atoms.tie(made, read, 2.0)
        return self._write(node, None, made)

    def _entry(self, value: ir.Value) -> None:
        """A graph input, or what no power passes: all that read it read a multiple."""
        self.layouts[value] = Layout.along(None, self._factor_on(value, None), np.array([self.high(value)]))

    def _channels(self, value: ir.Value) -> None:
        """A graph input such as a cache: all that read it read a multiple of each channel."""
        high = self.ranges.channels[value.name or ""]
        layout = Layout.over(range(high.ndim), high.shape, self.atoms.fresh(high.size), high.reshape(-1))
        shape, peak = layout.shape(high.ndim), layout.cap[:, None]
        front = Weights(None, 0, layout.atoms, shape, (TYPICAL * peak) ** 2, peak, front=True, read=value)
        self.layouts[value] = layout
        self.weights.append(front)

    def _factor_on(self, value: ir.Value, node: ir.Node | None) -> Ints:
        read, high = self.atoms.fresh(1), np.array([[self.high(value)]])
        self.weights.append(Weights(node, 0, read, (), (TYPICAL * high) ** 2, high, front=True, read=value))
        return read

    def _sqrt(self, node: ir.Node) -> bool:
        """sqrt(4^k x) = 2^k sqrt(x), which what follows takes, or a multiplication right behind takes back."""
        value = self._data(node)
        if value is None:
            return False
        made = self.atoms.fresh(1)
        self.atoms.follow(made, self._uniform(value).atoms, 0.5)
        self.roots.append(node)
        return self._write(node, None, made)

    def _logarithm(self, node: ir.Node) -> bool:
        """log(2^k x) = log(x) + k log(2), and exp(x + k log(2)) = 2^k exp(x)."""
        value = self._data(node)
        if value is None or not self.rounds:
            return False
        self.rounded.add(node.name or "")
        if node.op_type == "Exp":
            self.atoms.pin(self._read(value).atoms)
            made = self.atoms.fresh(1)
            self.terms.append((node, made))
            return self._write(node, None, made)
        self.terms.append((node, self._uniform(value).atoms))
        return self._write(node, None, np.array([PINNED]))

    # -- products of what is computed ---------------------------------------------------------------------------------

    def _power(self, node: ir.Node) -> bool:
        """(2^k x)^n = 2^(n k) x^n. Squares, cubes and reciprocals keep their bits."""
        value = self._data(node)
        exponent = {"Reciprocal": -1.0, "ReduceSumSquare": 2.0}.get(node.op_type)
        if exponent is None:
            exponent = self.view.scalar(node.inputs[1]) if len(node.inputs) == 2 else None
        exact = exponent in _EXACT or node.op_type == "Reciprocal"
        if value is None or not exponent or not (exact or self.rounds):
            return False
        if not exact:
            self.rounded.add(node.name or "")
        if node.op_type == "ReduceSumSquare" and not self._reduce(node):
            return False
        layout = self._read(node.outputs[0] if node.op_type == "ReduceSumSquare" else value)
        made = self.atoms.fresh(len(layout.atoms))
        self.atoms.tie(made, layout.atoms, exponent)
        return self._put(node, replace(layout, atoms=made), capped=False)

    def _recurrent(self, node: ir.Node) -> bool:
        """Its first weight takes back what each channel of the input carries; all else it reads as it is."""
        value, array = self._data(node), stored(node.inputs[1])
        if value is None or array is None or array.ndim != 3:
            return False
        for other in filter(None, node.inputs[2:]):
            self.atoms.pin(self._read(other).atoms)
        size = array.shape[2]
        columns, (square, peak, _) = self._along(value, 2, size).atoms, blocks(array, (2,))
        rows, ones = np.full(1, PINNED), (1, 1, 1)
        self.weights.append(Weights(node, 1, rows, ones, square[None], peak[None], columns[None], (1, 1, size)))
        return True

    def _pair(self, node: ir.Node, left: ir.Value, right: ir.Value, rank: int) -> bool:
        """2^k x * 2^l y = 2^(k+l) x y, and the same of quotients."""
        if self.view.rank(left) is None or self.view.rank(right) is None:
            return False
        both = [self._in(value, rank) for value in (left, right)]
        wide, narrow = sorted(both, key=lambda layout: -len(layout.axes))
        within, dims = {*narrow.axes} <= {*wide.axes}, self.extents.whole(node.outputs[0])
        axes, sizes = common([wide] if within else both, dims)
        both = self._all_along(both, axes, sizes)
        made = self.atoms.fresh(len(both[0].atoms))
        self._multiply(made, [layout.atoms for layout in both], (left, right), -1.0 if node.op_type == "Div" else 1.0)
        return self._put(node, replace(both[0], atoms=made), capped=False)


def rounds_anew(view: View, node: ir.Node) -> bool:
    """Whether powers of two pass it with a new rounding only, if at all."""
    if node.domain or node.op_type not in ("Log", "Exp", "Pow"):
        return False
    return node.op_type != "Pow" or (len(node.inputs) == 2 and view.scalar(node.inputs[1]) not in (None, 0.0, *_EXACT))
