"""What powers of two become in products, quotients, powers, roots and logarithms, and where a factor may be put."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.moving import behind
from halfwise.model.patterns.view import View, attribute
from halfwise.repair.graph_edit import whole
from halfwise.repair.rule import Ranges
from halfwise.repair.scale_atoms import PINNED, TYPICAL, Floats, Ints, Weights
from halfwise.repair.scale_layout import Layout, common
from halfwise.repair.scale_moves import ScaleMoves

__all__ = ["ScaleProducts", "rounds_anew"]

_EXACT = (2.0, 3.0)  # powers that keep the bits of what was scaled
_ONE_AXIS = 13  # the opset from which Softmax does not flatten


class ScaleProducts(ScaleMoves):
    """Afterwards: `roots` (square roots, which may be scaled back right behind), `terms` (logarithms, behind which the
    logarithm of what they read of a power is taken off, and exponentials, in front of which that of what they make is
    added). `rounds`: what only rounds anew may be passed, too: powers, logarithms, exponentials; `rounded` names it."""

    def __init__(self, model: Model, ranges: Ranges, *, rounds: bool = False) -> None:
        super().__init__(model, ranges)
        self.rounds = rounds
        self.rounded: set[str] = set()
        self.roots: list[ir.Node] = []
        self.terms: list[tuple[ir.Node, Ints]] = []

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
        """A graph input: all that read it read a multiple."""
        self.layouts[value] = Layout.along(None, self._factor_on(value, None), np.array([self.high(value)]))

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

    def _pair(self, node: ir.Node, left: ir.Value, right: ir.Value, rank: int) -> bool:
        """2^k x * 2^l y = 2^(k+l) x y, and the same of quotients."""
        if self.view.rank(left) is None or self.view.rank(right) is None:
            return False
        both = [self._in(value, rank) for value in (left, right)]
        wide, narrow = sorted(both, key=lambda layout: -len(layout.axes))
        axes, sizes = common(
            [wide] if set(narrow.axes) <= set(wide.axes) else both, self.extents.whole(node.outputs[0])
        )
        both = self._all_along(both, axes, sizes)
        made = self.atoms.fresh(len(both[0].atoms))
        self._multiply(made, [layout.atoms for layout in both], (left, right), -1.0 if node.op_type == "Div" else 1.0)
        return self._put(node, replace(both[0], atoms=made), capped=False)

    def _matrices(self, node: ir.Node, value: ir.Value, other: ir.Value, *, gate: bool) -> bool:
        """Of two computed matrices, or of a `gate` and one: powers of rows, of columns and of heads pass; along what is
        summed over all pairs make the same."""
        left, right, rank = self._read(value), self._read(other), self.view.rank(node.outputs[0])
        own, theirs = self.view.rank(value), self.view.rank(other)
        if own is None or theirs is None or rank is None or min(own, theirs) < 2:
            rank, left, right = 0, self._as_one(left), self._as_one(right)
        else:  # along the result's axes, and behind them the one that is summed over
            left = left.at([rank if axis == own - 1 else axis + rank - own for axis in left.axes])
            right = right.at([rank if axis == theirs - 2 else axis + rank - theirs for axis in right.axes])
        lost = {rank} if gate or left.size(rank) != right.size(rank) else set()
        right = self._kept(right, set(right.axes) - lost)
        if gate:
            self.atoms.pin(left.atoms)
            return self._put(node, replace(right, cap=self._sums(right.cap, value, other)))
        columns = {rank - 2} if rank - 1 in right.axes else set()  # or each place would have an unknown
        left = self._kept(left, set(left.axes) - lost - columns)
        axes = sorted({*left.axes, *right.axes})
        sizes = [max(left.size(axis), right.size(axis)) for axis in axes]
        alone = [1 if axis == rank else size for axis, size in zip(axes, sizes, strict=True)]
        made = self.atoms.fresh(math.prod(alone))
        self._multiply(
            made.reshape(alone), [layout.block(layout.atoms, axes) for layout in (left, right)], (value, other), 1.0
        )
        loudest = right.block(right.cap, axes).max(axis=tuple(i for i, axis in enumerate(axes) if axis == rank))
        cap = np.broadcast_to(loudest.reshape([1 if axis == rank else right.size(axis) for axis in axes]), alone)
        made_of = Layout.over(
            axes, alone, made, self._sums(cap.reshape(-1), value, other), left.repeated | right.repeated
        )
        return self._put(node, made_of)

    def _sums(self, cap: Floats, value: ir.Value, other: ir.Value) -> Floats:
        """How large products of matrices may be, of what the right one may be; infinite where nobody knows."""
        if _is_share(self.view, value):
            return cap
        array, dims = whole(value), self.extents.whole(other) or [None]
        high = self.high(value) if array is None else float(np.abs(array.astype(np.float64)).max(initial=0.0))
        many = dims[max(len(dims) - 2, 0)]
        known = many is not None and math.isfinite(high) and bool(np.isfinite(cap).all())
        return cap * high * many if known and many is not None else np.full(len(cap), math.inf)

    def _multiply(self, made: Ints, both: Sequence[Ints], values: tuple[ir.Value, ir.Value], sign: float) -> None:
        """The quieter one is pinned where nothing says which may be scaled."""
        one, other = both
        if sign > 0 and self.high(values[0]) < self.high(values[1]):
            one, other = other, one
        self.atoms.product(made, one, other, sign)


def rounds_anew(view: View, node: ir.Node) -> bool:
    """Whether powers of two pass it with a new rounding only, if at all."""
    if node.domain or node.op_type not in ("Log", "Exp", "Pow"):
        return False
    return node.op_type != "Pow" or (len(node.inputs) == 2 and view.scalar(node.inputs[1]) not in (None, 0.0, *_EXACT))


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
