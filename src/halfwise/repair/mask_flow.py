"""Follows finite stand-ins for minus infinity from their constants to the softmax, for HW403."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.elements import Elements
from halfwise.model.moving import FROM_FIRST, Move, behind, movers
from halfwise.model.operator_slots import SHAPE_READERS
from halfwise.model.patterns.view import View, attribute
from halfwise.repair.rule import Ranges

__all__ = ["LARGE", "MaskGroup", "Meeting", "Source", "mask_groups"]

LARGE = 1e4  # from here on a number stands for infinity
_BIAS = 1e3  # up to here it is a bias
_ALIKE = 0.01  # how far two stand-ins that meet may differ
_LEAST_FACTOR = 1 / 16  # a mask that is multiplied with less is no mask of zeros and ones
_MOVED = FROM_FIRST | movers(Move.ZEROS) | {"Dropout"}
_JOINS = frozenset({"Where", "Concat", "ScatterND", "ScatterElements", "Pad", "Max"})
_READERS = _MOVED | _JOINS | {"Add", "Sub", "Mul", "Div", "Cast"}


@dataclass(frozen=True)
class Source:
    """A constant as one node reads it, or a ConstantOfShape (`slot` -1)."""

    node: ir.Node
    slot: int
    number: float


@dataclass(frozen=True)
class Carried:
    """What a value holds of masks: multiples of their number, from `low` to `high`; `least` is the smallest."""

    sources: frozenset[int]
    low: float
    high: float
    least: float
    pure: bool  # nothing but masks

    def times(self, factor: float) -> Carried:
        low, high = sorted((self.low * factor, self.high * factor))
        return Carried(self.sources, low, high, self.least * abs(factor), self.pure)


@dataclass(frozen=True)
class Meeting:
    """A sum of masks with something else; `slots` are those that carry masks, `least` is theirs."""

    node: ir.Node
    slots: tuple[int, ...]
    least: tuple[float, ...]


@dataclass
class MaskGroup:
    """Masks that meet one another: their constants change together."""

    sources: list[Source] = field(default_factory=list)
    nodes: list[ir.Node] = field(default_factory=list)
    meetings: list[Meeting] = field(default_factory=list)
    deepest: float = 0.0
    least: float = math.inf
    scores: float = 0.0  # the largest magnitude of what is masked, where it is known
    all_known: bool = True

    @property
    def number(self) -> float:
        return max(abs(source.number) for source in self.sources)


def mask_groups(view: View, ranges: Ranges) -> list[MaskGroup]:
    """Groups of masks whose whole way is known and ends in a softmax."""
    return _Flow(view, ranges).run()


class _Flow:
    def __init__(self, view: View, ranges: Ranges) -> None:
        self.view = view
        self.ranges = ranges
        self.sources: list[Source] = []
        self.given: dict[tuple[ir.Node, int], int] = {}
        self.carried: dict[ir.Value, Carried] = {}
        self.parent: list[int] = []
        self.bad: set[int] = set()
        self.reached: set[int] = set()
        self.visited: list[tuple[ir.Node, int]] = []
        self.meetings: list[tuple[Meeting, int]] = []
        self.coefficients: list[tuple[int, Carried]] = []
        self.scores: list[tuple[int, float | None]] = []

    def run(self) -> list[MaskGroup]:
        self._gather()
        if self.sources:
            for node in self.view.model.graph:
                self._visit(node)
        return self._groups()

    # -- the constants ------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        graph = self.view.model.graph
        for value in self.view.model.initializers():
            uses = [use for use in value.uses() if use[0].graph is graph]
            readers = [(node, slot) for node, slot in uses if not node.domain and node.op_type in _READERS]
            number = _stand_in(value) if readers and value.dtype == ir.DataType.FLOAT else None
            for node, slot in readers if number is not None else ():
                self.given[node, slot] = self._source(Source(node, slot, number or 0.0))
        for node in self.view.of("ConstantOfShape"):
            tensor = attribute(node, "value", None)
            if node.graph is graph and tensor is not None and tensor.dtype == ir.DataType.FLOAT and tensor.size == 1:
                number = float(tensor.numpy().reshape(-1)[0])
                if LARGE <= abs(number) < math.inf:
                    index = self._source(Source(node, -1, number))
                    self.visited.append((node, index))
                    self._carry(node, _of_source(index, number, pure=True))

    def _source(self, source: Source) -> int:
        self.sources.append(source)
        self.parent.append(len(self.parent))
        return len(self.parent) - 1

    # -- one node -----------------------------------------------------------------------------------------------------

    def _visit(self, node: ir.Node) -> None:
        reads = {slot: found for slot in range(len(node.inputs)) if (found := self._read(node, slot)) is not None}
        if not reads:
            return
        group = self._join(index for each in reads.values() for index in each.sources)
        self.visited.append((node, group))
        if not self._follow(node, reads):
            self.bad.add(group)

    def _read(self, node: ir.Node, slot: int) -> Carried | None:
        index = self.given.get((node, slot))
        if index is not None:
            array = self.view.constant(node.inputs[slot])
            return _of_source(index, self.sources[index].number, pure=array is not None and _is_pure(array))
        value = node.inputs[slot]
        return self.carried.get(value) if value is not None else None

    def _follow(self, node: ir.Node, reads: Mapping[int, Carried]) -> bool:
        """Hand on what a node carries; False where it is no mask's way."""
        op, first = node.op_type, next(iter(reads.values()))
        if node.domain:
            return False
        if op == "Softmax":
            self.reached.update(first.sources)
            return first.low < 0.0 >= first.high
        if op in _MOVED or (op == "Cast" and node.outputs[0].dtype == ir.DataType.FLOAT):
            return set(reads) == {0} and self._carry(node, first)
        if op in _JOINS:
            return self._joined(node, reads)
        if op in ("Mul", "Div"):
            factor = self._factor(node, reads)
            return factor is not None and self._carry(node, first.times(factor))
        if op in ("Add", "Sub"):
            return self._sum(node, reads)
        if op == "Equal":  # to a small number: no mask is that, however large it is, but two may cancel
            number = self.view.scalar(node.inputs[1 - next(iter(reads))]) if len(reads) == 1 else None
            return number is not None and abs(number) <= 1.0 and (first.high <= 0.0 or first.low >= 0.0)
        if op in SHAPE_READERS:
            return True
        if op == "ReduceMax":  # of a softmax written out: x - max(x)
            uses = self.view.uses(node.outputs[0])
            return len(uses) == 1 and uses[0][0].op_type == "Sub" and uses[0][0].inputs[0] is node.inputs[0]
        return False

    def _carry(self, node: ir.Node, carried: Carried) -> bool:
        value = node.outputs[0]
        outside = any(reader.graph is not self.view.model.graph for reader, _ in value.uses())
        if value.is_graph_output() or outside or any(other.uses() for other in node.outputs[1:]):
            self.bad.update(carried.sources)
            return False
        self.carried[value] = carried
        self.coefficients.append((min(carried.sources), carried))
        return True

    def _joined(self, node: ir.Node, reads: Mapping[int, Carried]) -> bool:
        """One value or another, element by element."""
        chosen = {"Where": (1, 2), "Pad": (0, 2), "ScatterND": (0, 2), "ScatterElements": (0, 2)}
        slots = chosen.get(node.op_type, tuple(range(len(node.inputs))))
        if not set(reads) <= set(slots) or attribute(node, "reduction", "none") != "none":
            return False
        if node.op_type == "Max" and len(reads) != len(node.inputs):
            return False
        others = [node.inputs[slot] for slot in slots if slot not in reads and slot < len(node.inputs)]
        self._note_scores(reads, others)
        both = list(reads.values())
        pick = max if node.op_type == "Max" else min
        return self._carry(node, Carried(
            frozenset().union(*(each.sources for each in both)),
            pick(each.low for each in both),
            max(each.high for each in both),
            min(each.least for each in both),
            all(each.pure for each in both) and all(self.view.scalar(value) == 0.0 for value in others),
        ))  # fmt: skip

    def _sum(self, node: ir.Node, reads: Mapping[int, Carried]) -> bool:
        signed = {slot: each.times(-1.0) if node.op_type == "Sub" and slot else each for slot, each in reads.items()}
        if node.op_type == "Sub" and set(reads) == {0} and self._ends_in_exponential(node):
            self.reached.update(reads[0].sources)
            return reads[0].low < 0.0 >= reads[0].high
        total = Carried(
            frozenset().union(*(each.sources for each in signed.values())),
            sum(each.low for each in signed.values()),
            sum(each.high for each in signed.values()),
            min(each.least for each in signed.values()),
            len(signed) == 2 and all(each.pure for each in signed.values()),
        )
        if not total.pure:
            if any(each.high > 0.0 for each in signed.values()):
                return False
            self._note_scores(reads, [value for slot, value in enumerate(node.inputs) if slot not in reads])
            meeting = Meeting(node, tuple(signed), tuple(each.least for each in signed.values()))
            if {reader.op_type for reader, _ in self.view.uses(node.outputs[0])} != {"Equal"}:
                self.meetings.append((meeting, min(total.sources)))
        return self._carry(node, total)

    def _ends_in_exponential(self, node: ir.Node) -> bool:
        largest = self.view.maker(node.inputs[1], "ReduceMax")
        readers = [reader.op_type for reader, _ in self.view.uses(node.outputs[0])]
        same = largest is not None and largest.inputs[0] is node.inputs[0]
        return same and set(readers) == {"Exp"} and not node.outputs[0].is_graph_output()

    def _factor(self, node: ir.Node, reads: Mapping[int, Carried]) -> float | None:
        """What a mask is multiplied with: a number, or zeros and ones (or minus ones)."""
        if len(reads) != 1 or (node.op_type == "Div" and 0 not in reads):
            return None
        other = node.inputs[1 - next(iter(reads))]
        number = self.view.scalar(other)
        if number is not None:
            factor = number if node.op_type == "Mul" else (1.0 / number if number else 0.0)
            return factor if 0.0 < abs(factor) < math.inf else None
        return self._zeros_and_ones(other) if node.op_type == "Mul" else None

    def _zeros_and_ones(self, value: ir.Value | None) -> float | None:
        """1 for a tensor of zeros and ones, -1 for one of zeros and minus ones."""
        value = behind(value, _MOVED)
        if value is None:
            return None
        difference = self.view.maker(value, "Sub")
        if difference is not None and self.view.is_scalar(difference.inputs[0], 1.0):
            return 1.0 if self._zeros_and_ones(difference.inputs[1]) == 1.0 else None
        if difference is not None and self.view.is_scalar(difference.inputs[1], 1.0):
            return -1.0 if self._zeros_and_ones(difference.inputs[0]) == 1.0 else None
        array = self.view.constant(value)
        if array is not None:
            return 1.0 if bool(np.isin(array, (0, 1)).all()) else None
        cast = self.view.maker(value, "Cast")
        if cast is not None and cast.inputs[0] is not None and cast.inputs[0].dtype == ir.DataType.BOOL:
            return 1.0
        if cast is None and not value.is_graph_input():
            return None
        high, low = self.ranges.high.get(value.name or ""), self.ranges.low.get(value.name or "", 1.0)
        return 1.0 if high is not None and high <= 1.0 and low >= _LEAST_FACTOR else None

    def _note_scores(self, reads: Mapping[int, Carried], others: Iterable[ir.Value | None]) -> None:
        index = min(min(each.sources) for each in reads.values())
        for value in others:
            number = self.view.scalar(value)
            known = abs(number) if number is not None else self.ranges.high.get(value.name or "") if value else None
            self.scores.append((index, known))

    # -- groups -------------------------------------------------------------------------------------------------------

    def _join(self, indices: Iterable[int]) -> int:
        roots = {self._root(index) for index in indices}
        first = min(roots)
        for root in roots:
            self.parent[root] = first
        return first

    def _root(self, index: int) -> int:
        while self.parent[index] != index:
            index = self.parent[index]
        return index

    def _groups(self) -> list[MaskGroup]:
        groups: dict[int, MaskGroup] = {}
        for index, source in enumerate(self.sources):
            groups.setdefault(self._root(index), MaskGroup()).sources.append(source)
        for node, index in self.visited:
            groups[self._root(index)].nodes.append(node)
        for meeting, index in self.meetings:
            groups[self._root(index)].meetings.append(meeting)
        for index, carried in self.coefficients:
            group = groups[self._root(index)]
            group.deepest = max(group.deepest, abs(carried.low), abs(carried.high))
            group.least = min(group.least, carried.least)
        for index, size in self.scores:
            group = groups[self._root(index)]
            group.scores = max(group.scores, size or 0.0)
            group.all_known &= size is not None
        bad = {self._root(index) for index in self.bad}
        reached = {self._root(index) for index in self.reached}
        return [g for root, g in groups.items() if root in reached - bad and _agree(g.sources)]


def _of_source(index: int, number: float, *, pure: bool) -> Carried:
    sign = math.copysign(1.0, number)
    return Carried(frozenset({index}), min(sign, 0.0), max(sign, 0.0), 1.0, pure)


def _stand_in(value: ir.Value) -> float | None:
    """The one large number in a constant whose other elements are small; None where there is none, or several."""
    if value.const_value is None:
        return None
    if not any((np.abs(window) >= LARGE).any() for window in Elements(value.const_value).windows()):
        return None
    array = np.asarray(value.const_value.numpy())
    size = np.abs(array)
    large = array[size >= LARGE]
    if not large.size or not bool(np.isfinite(array).all()) or bool(((size > _BIAS) & (size < LARGE)).any()):
        return None
    low, high = float(large.min()), float(large.max())
    return (low if low < 0 else high) if low * high > 0 and abs(high - low) <= _ALIKE * abs(low) else None


def _is_pure(array: NDArray[Any]) -> bool:
    return bool(((np.abs(array) >= LARGE) | (array == 0.0)).all())


def _agree(sources: Iterable[Source]) -> bool:
    sizes = [abs(source.number) for source in sources]
    return max(sizes) - min(sizes) <= _ALIKE * max(sizes)
