"""How many elements tensors have along their axes: numbers, open dimensions by their names, and products of both.

Beyond what shape inference tells: a Reshape keeps the number of elements, exporters compute shapes of other shapes, and
a matrix has as many rows as what is multiplied by it has columns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from halfwise.model.patterns.view import View, attribute

__all__ = ["Extents", "Size", "Sizes", "extents_of", "whole_numbers"]

_BROADCAST = frozenset("Add Sub Mul Div Pow Max Min Sum Mean Where And Or Equal Less Greater".split())
_DEPTH = 24  # of nodes that compute a shape
_LONG = 64  # more entries than a shape has
_INTEGERS = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL})


@dataclass(frozen=True)
class Size:
    """A number times open dimensions, by their names in order."""

    number: int
    names: tuple[str, ...] = ()

    def __mul__(self, other: Size) -> Size:
        return Size(self.number * other.number, tuple(sorted(self.names + other.names)))

    def over(self, other: Size) -> Size | None:
        """The quotient, None where it is not whole."""
        mine, theirs = Counter(self.names), Counter(other.names)
        if other.number < 1 or self.number % other.number or theirs - mine:
            return None
        return Size(self.number // other.number, tuple(sorted((mine - theirs).elements())))

    @property
    def whole(self) -> int | None:
        return None if self.names else self.number


Sizes = Sequence[Size | None]


class Extents:
    """Of the main graph of a model."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[str, Size] = {}
        nodes = [node for node in view.model.graph if not node.domain]
        for node in nodes:
            if node.op_type == "MatMul" and node.inputs[1] is not None and node.inputs[1].is_initializer():
                self._of_matrix(node)
        for node in nodes:
            if node.op_type == "Reshape":
                self._reshaped(node)
            elif node.op_type == "Expand":
                asked = self.entries(node.inputs[1])
                self._broadcast(node, [self.of(node.inputs[0]), asked and [_above_0(each) for each in asked]])
            elif node.op_type == "MatMul":
                given = [self.of(value) for value in node.inputs]
                self._broadcast(node, [each[:-2] if each and len(each) > 1 else None for each in given], behind=2)
            elif node.op_type == "Slice":
                self._sliced(node)
            elif node.op_type == "Concat":
                self._joined(node)
            elif node.op_type in _BROADCAST:
                self._broadcast(node, [self.of(value) for value in node.inputs])

    def of(self, value: ir.Value | None) -> Sizes | None:
        """Of each axis; None where the rank is open. What is called as an input is in what a model hands out may have
        another size."""
        if value is None or value.shape is None:
            return None
        own = f"{value.name}: " if value.is_graph_output() else ""
        return [
            Size(dim) if isinstance(dim, int) else None if dim.value is None else self._named(f"{own}{dim.value}")
            for dim in value.shape
        ]

    def whole(self, value: ir.Value) -> list[int | None] | None:
        """The same, with numbers alone."""
        found = self.of(value)
        return None if found is None else [None if each is None else each.whole for each in found]

    def entries(self, value: ir.Value | None, depth: int = _DEPTH) -> Sizes | None:
        """The integers of a list, or the only one, as far as they are numbers or come from dimensions."""
        if value is None or value.dtype not in _INTEGERS or self._view.rank(value) not in (0, 1):
            return None
        array, node = self._view.constant(value), value.producer()
        if array is not None:
            return [Size(int(each)) for each in array.reshape(-1)] if array.size <= _LONG else None
        if node is None or node.domain or not depth:
            return None
        if node.op_type == "Shape":
            found = self.of(node.inputs[0])
            return found and found[slice(attribute(node, "start", 0), attribute(node, "end", None))]
        compute = _COMPUTED.get(node.op_type)
        given = [self.entries(each, depth - 1) for each in node.inputs] if compute else []
        known = [each for each in given if each is not None]
        return compute(node, *known) if compute is not None and len(known) == len(given) else None

    def _named(self, name: str) -> Size:
        known = self._known.get(name)
        if known is None:
            return Size(1, (name,))
        self._known[name] = known = self._resolved(known)  # or chains of names would grow long
        return known

    def _resolved(self, size: Size) -> Size:
        if not any(name in self._known for name in size.names):
            return size
        return math.prod((self._named(name) for name in size.names), start=Size(size.number))

    def _tell(self, one: Size | None, other: Size | None) -> None:
        """Both are the same: what is an open dimension by itself is the other one."""
        if one is None or other is None:
            return
        one, other = self._resolved(one), self._resolved(other)
        for name, size in ((one, other), (other, one)):
            if name.number == 1 and len(name.names) == 1 and name.names[0] not in size.names:
                self._known[name.names[0]] = size
                return

    def _of_matrix(self, node: ir.Node) -> None:
        """What a matrix is multiplied by has as many columns as the matrix has rows."""
        columns, rows = self.of(node.inputs[0]), self.of(node.inputs[1])
        if columns and rows and len(rows) == 2:
            self._tell(columns[-1], rows[0])

    def _reshaped(self, node: ir.Node) -> None:
        before, after = self.of(node.inputs[0]), self.of(node.outputs[0])
        told = self.entries(node.inputs[1]) if len(node.inputs) > 1 else None
        if before is None or after is None:
            return
        if told is not None and len(told) == len(after):
            for axis, (size, asked) in enumerate(zip(after, told, strict=True)):
                copied = asked is not None and asked.number == 0 and not attribute(node, "allowzero", 0)
                if copied:
                    asked = before[axis] if axis < len(before) else None
                self._tell(size, _above_0(asked))
        one, other = _product(self.of(node.inputs[0])), _product(self.of(node.outputs[0]))
        if one is None or other is None:
            return
        shared = Size(math.gcd(one.number, other.number), tuple((Counter(one.names) & Counter(other.names)).elements()))
        self._tell(one.over(shared), other.over(shared))

    def _sliced(self, node: ir.Node) -> None:
        made, read = self.of(node.outputs[0]), self.of(node.inputs[0])
        starts, ends, axes, steps = [*(whole_numbers(self.entries(value)) for value in node.inputs[1:]), *[None] * 3][
            :4
        ]
        if made is None or read is None or axes is None:
            return
        cut = [axis % len(read) for axis in axes]
        for axis in {*range(len(made))} - {*cut}:
            self._tell(made[axis], read[axis])
        if starts is None or ends is None or (steps is None and len(node.inputs) > 4):
            return
        for axis, *part in zip(cut, starts, ends, steps or [1] * len(cut), strict=True):
            size = read[axis]
            if size is not None and size.whole is not None:
                self._tell(made[axis], Size(len(range(size.whole)[slice(*part)])))

    def _joined(self, node: ir.Node) -> None:
        made, parts = self.of(node.outputs[0]), [self.of(value) for value in node.inputs]
        if made is None or any(each is None for each in parts):
            return
        for axis, size in enumerate(made):
            sizes = [each[axis] for each in parts if each is not None]
            if axis != attribute(node, "axis", 0) % len(made):
                self._tell(size, next((each for each in sizes if each is not None), None))
            elif (many := whole_numbers(sizes)) is not None:
                self._tell(size, Size(sum(many)))

    def _broadcast(self, node: ir.Node, given: Sequence[Sizes | None], behind: int = 0) -> None:
        """Of operands' axes the one that is not 1 tells, the last `behind` of a result apart."""
        made = self.of(node.outputs[0])
        known = [each for each in given if each is not None]
        if made is None or len(known) < len(given) or made in known:
            return
        for place in range(1, len(made) - behind + 1):
            sizes = {each[-place] for each in known if len(each) >= place} - {Size(1)}
            numbers = {each for each in sizes if each is not None and not each.names}
            if len(sizes) == 1 or len(numbers) == 1:
                self._tell(made[len(made) - behind - place], (numbers or sizes).pop())


def extents_of(view: View, known: dict[Any, Any]) -> Extents:
    """Worked out once for all who share `known`; they hang on the model alone."""
    key = (Extents, view.model)
    if key not in known:
        known[key] = Extents(view)
    found: Extents = known[key]
    return found


def whole_numbers(sizes: Sizes | None) -> list[int] | None:
    """Of sizes that are all numbers."""
    whole = [each.whole for each in sizes or () if each is not None]
    known = [each for each in whole if each is not None]
    return known if sizes is not None and len(known) == len(sizes) else None


def _product(sizes: Sizes | None) -> Size | None:
    known = [each for each in sizes or () if each is not None]
    return math.prod(known, start=Size(1)) if sizes is not None and len(known) == len(sizes) else None


def _above_0(size: Size | None) -> Size | None:
    return size if size is not None and size.number > 0 else None


def _gather(node: ir.Node, data: Sizes, indices: Sizes) -> Sizes | None:
    places = whole_numbers(indices)
    if places is None or any(not -len(data) <= place < len(data) for place in places):
        return None
    return [data[place] for place in places]


def _slice(node: ir.Node, data: Sizes, *given: Sizes) -> Sizes | None:
    known = [whole_numbers(each) for each in given]
    if any(each is None or len(each) != 1 for each in known):
        return None
    start, end, _, step = [*(each[0] for each in known if each), *[0, 1][len(known) - 2 :]]
    return data[start:end:step]


def _filled(node: ir.Node, count: Sizes) -> Sizes | None:
    """ConstantOfShape of a list's length."""
    many, value = whole_numbers(count), node.attributes.get("value")
    number = 0 if value is None else value.as_tensor().numpy().reshape(-1)[0]
    return [Size(int(number))] * many[0] if many is not None and len(many) == 1 and many[0] <= _LONG else None


def _times(node: ir.Node, one: Sizes, other: Sizes) -> Sizes:
    return [left * right if left and right else None for left, right in _pairs(one, other)]


def _quotient(node: ir.Node, one: Sizes, other: Sizes) -> Sizes:
    return [_parts(left, right) if left and right and left.number > 0 else None for left, right in _pairs(one, other)]


def _parts(one: Size, other: Size) -> Size | None:
    """Of whole numbers what is left over is left out."""
    return one.over(other) if one.names or other.names or other.number < 1 else Size(one.number // other.number)


def _sum(node: ir.Node, one: Sizes, other: Sizes) -> Sizes:
    pairs = _pairs(one, other)
    return [Size(a.number + b.number) if a and b and not (a.names or b.names) else None for a, b in pairs]


def _equal(node: ir.Node, one: Sizes, other: Sizes) -> Sizes:
    """1 where two are the same, 0 where they never are: no dimension is below 0."""
    return [_same(left, right) for left, right in _pairs(one, other)]


def _same(one: Size | None, other: Size | None) -> Size | None:
    if one is None or other is None:
        return None
    if one == other:
        return Size(1)
    differ = not (one.names or other.names) or min(one.number, other.number) < 0 < max(one.number, other.number)
    return Size(0) if differ else None


def _where(node: ir.Node, which: Sizes, one: Sizes, other: Sizes) -> Sizes | None:
    if not len(which) == len(one) == len(other):
        return None
    chosen = zip(which, one, other, strict=True)
    return [None if each is None else (left if each.number else right) for each, left, right in chosen]


def _pairs(one: Sizes, other: Sizes) -> list[tuple[Size | None, Size | None]]:
    many = max({len(one), len(other)} - {1}, default=1)
    return list(zip(*(each if len(each) == many else [*each][:1] * many for each in (one, other)), strict=True))


def _kept(node: ir.Node, data: Sizes, *_: Sizes) -> Sizes | None:
    return None if node.outputs[0].dtype is ir.DataType.BOOL else data


def _joined(node: ir.Node, *parts: Sizes) -> Sizes:
    return [each for part in parts for each in part]


_COMPUTED: Mapping[str, Callable[..., Sizes | None]] = {
    **dict.fromkeys("Identity Cast Unsqueeze Squeeze Reshape".split(), _kept),
    "Concat": _joined,
    "Gather": _gather,
    "Slice": _slice,
    "ConstantOfShape": _filled,
    "Add": _sum,
    "Mul": _times,
    "Div": _quotient,
    "Equal": _equal,
    "Where": _where,
}
