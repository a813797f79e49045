"""Finds what a decision leaves infinite inside: finite in FP32, not finite in FP16, and no harmless matter.

What other inputs may be expected to lose counts, too, from how far a tensor's largest and smallest values spread over
the inputs seen; so does a divisor that lost its guard, of a sum that they may leave empty. An output may hide it: a
norm whose squares overflow gives zeros, and the tolerance may bear that on the samples seen. It is harmless where it
vanishes in FP32 itself: a mask in a softmax, the exponential of minus infinity, what a Clip, a Min, a Tanh or a Where
behind it replaces. Each overflow is followed through the FP32 model, from each reader by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.counting import Counts
from halfwise.core.errors import InputError
from halfwise.core.formats import Format, round_to
from halfwise.emulation.stepper import Step, Stepper
from halfwise.emulation.store import Store
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.absorption import Overflow, overflowed
from halfwise.search.clamped import Clamped
from halfwise.search.empty_sums import unguarded
from halfwise.search.tensor_statistics import TensorStatistics
from halfwise.search.unseen_bound import spread

__all__ = ["Harmful", "Headroom", "Nodes", "harmful_overflows", "headroom", "may_overflow", "suspects"]

Array = NDArray[Any]
Nodes = frozenset[ir.Node]
Origin = tuple[ir.Node, ir.Value]  # a reader, and what it takes

SAME = 1e-6  # relative difference up to which two results are the same
OTHER_INPUTS = 8.0  # times what one input was seen to reach: others may
# What makes an infinity of an input that rounding makes zero, and the slot of that input.
_OF_ZERO = {"Div": 1, "Log": 0, "Pow": 0, "Reciprocal": 0}


def may_overflow(sites: Sites, statistics: TensorStatistics) -> bool:
    """Whether a model that held these values may have an overflow in it at all; cheap, and wrong to one side only."""
    limit, least = sites.fmt.max / OTHER_INPUTS, sites.fmt.smallest_subnormal * OTHER_INPUTS
    if any(counts.max_abs > limit for counts in statistics.tensors.values()):
        return True
    for _, value in _divided_by(sites):
        if value not in statistics.tensors:
            continue
        hidden = statistics.over(_terms(value))[0] * sites.fmt.unit_roundoff * OTHER_INPUTS
        if 0 < statistics.tensors[value].min_abs < max(least, hidden):
            return True
    return bool(unguarded(sites))


def _divided_by(sites: Sites) -> Iterator[tuple[ir.Node, ir.Value]]:
    """What must not become zero, and where."""
    for node in sites.model.graph:
        if node.op_type in _OF_ZERO and not node.domain and not _grows(node):
            value = node.inputs[_OF_ZERO[node.op_type]]
            if value is not None:
                yield node, value


def _terms(value: ir.Value) -> list[ir.Value]:
    """Of a sum."""
    maker = value.producer()
    return [term for term in maker.inputs if term is not None] if maker is not None and _is_sum(maker) else []


def _grows(node: ir.Node) -> bool:
    """Whether it is a power that makes zero of zero."""
    exponent = node.inputs[1].const_value if node.op_type == "Pow" and node.inputs[1] is not None else None
    return exponent is not None and bool((exponent.numpy() > 0).all())


def _is_sum(node: ir.Node) -> bool:
    return not node.domain and node.op_type in ("Add", "Sub")


@dataclass(frozen=True)
class Headroom:
    """By tensor, how many times larger its largest value may be in another input, and how many times smaller its
    smallest."""

    louder: Mapping[ir.Value, float] = field(default_factory=dict)
    quieter: Mapping[ir.Value, float] = field(default_factory=dict)


def headroom(sites: Sites, seen: Sequence[TensorStatistics]) -> Headroom:
    """From every input's statistics. What is the same in all of them is a constant of the model, and so is a mask: a
    number of the model or 0 in every place, in whatever inputs."""
    values = set[ir.Value]().union(*(each.tensors for each in seen))
    counts = {value: [each.tensors[value] for each in seen if value in each.tensors] for value in values}
    numbers = _numbers(sites)

    def louder(of: Sequence[Counts]) -> float:
        sizes = {size for each in of for size in (each.max_abs, each.min_abs) if size}
        return 1.0 if len(sizes) == 1 and sizes <= numbers else spread([each.max_abs for each in of])

    return Headroom(
        {value: louder(of) for value, of in counts.items()},
        {value: spread([1.0 / each.min_abs for each in of if each.min_abs]) for value, of in counts.items()},
    )


def _numbers(sites: Sites) -> frozenset[float]:
    """The magnitudes of its scalar constants."""
    held = [value.const_value for value in sites.model.graph.initializers.values()]
    named = [node.attributes["value"] for node in sites.model.graph if "value" in node.attributes]
    fills = [each.as_tensor() for each in named if each.type is ir.AttributeType.TENSOR]
    single = [np.asarray(each.numpy()) for each in (*held, *fills) if each is not None and each.size == 1]
    return frozenset(abs(float(array.reshape(-1)[0])) for array in single if array.dtype.kind == "f")


def suspects(sites: Sites, seen: Sequence[TensorStatistics], room: Headroom, kept: Nodes) -> frozenset[ir.Value]:
    """Tensors that may be lost with these nodes in FP32, in any of the samples seen; too many rather than too few."""

    def covered(*nodes: ir.Node | None) -> bool:
        return all(node is None or node in kept or node not in sites.of or not sites.of[node].free for node in nodes)

    graph, found = sites.model.graph, set[ir.Value]()
    for value, louder in room.louder.items():
        readers = [user for user, _ in value.uses() if user.graph is graph]
        largest = max(each.over((value,))[0] for each in seen) * louder
        if largest > sites.fmt.max and not all(covered(value.producer(), reader) for reader in readers):
            found.add(value)
    for node, value in _divided_by(sites):
        terms, quieter = _terms(value), room.quieter.get(value, 1.0)
        hidden = max(each.over(terms)[0] for each in seen) * sites.fmt.unit_roundoff
        limit = max(sites.fmt.smallest_subnormal, hidden) * quieter
        small = any(0 < each.over((value,))[1] < limit for each in seen)
        if small and not covered(value.producer(), node, *(term.producer() for term in terms)):
            found.add(value)
    found.update(value for value, nodes in unguarded(sites).items() if not covered(*nodes))
    return frozenset(found)


@dataclass(frozen=True)
class Harmful:
    """For each overflow of one sample that does not vanish again: the nodes that, all in FP32, remove it."""

    found: frozenset[Nodes]
    executed: float  # nodes


def harmful_overflows(
    stepper: Stepper,
    sites: Sites,
    feeds: Sequence[Mapping[str, Array]],
    io: Format,
    room: Headroom | None = None,
    kept: Nodes = frozenset(),
    among: frozenset[ir.Value] | None = None,
) -> list[Harmful]:
    """Of samples that go through the model beside one another. Overflows of `kept` alone are not followed, and behind
    the last of the tensors `among` nothing is looked for.

    What inputs lose that are handed over in FP16 is no matter of nodes.
    """
    walks, beside = [_Walk(stepper, sites, io, room or Headroom(), kept) for _ in feeds], list[Store]()
    stores = [Store(stepper.emulator, walk.fp32, feed, beside) for walk, feed in zip(walks, feeds, strict=True)]
    runs = [walk.run(store, among, beside) for walk, store in zip(walks, stores, strict=True)]
    executed = np.zeros(len(feeds))
    for each in zip_longest(*runs, fillvalue=0.0):
        executed += each
    return [Harmful(frozenset(walk.found), many) for walk, many in zip(walks, executed.tolist(), strict=True)]


@dataclass(frozen=True)
class _Infinite:
    """A tensor as FP16 holds it, where that is infinite, and the nodes that would have to write it in FP32."""

    array: Array
    makers: Nodes


@dataclass(frozen=True)
class _Difference:
    """A sum in FP32: the size up to which FP16 may give zero for it, place by place, and who makes its terms."""

    resolution: Array
    makers: Nodes


class _Walk:
    def __init__(self, stepper: Stepper, sites: Sites, io: Format, room: Headroom, kept: Nodes) -> None:
        self.clamped = Clamped(stepper, sites, kept)
        self.io = io
        self.kept = kept
        self.room = room
        self.differences: dict[ir.Value, _Difference] = {}
        self.stepper = stepper
        self.sites = sites
        self.unguarded = unguarded(sites)
        self.fp32 = Assignment(sites, {})
        self.found: set[Nodes] = set()
        self.infinite: dict[ir.Value, _Infinite] = {}
        self.on_the_way: dict[Origin, tuple[Nodes, Overflow]] = {}

    def _steps(self, store: Store) -> Iterator[Step]:
        """As far as the model can be run node by node."""
        with suppress(InputError):
            yield from self.stepper.walk(store)

    def run(self, store: Store, among: frozenset[ir.Value] | None, beside: list[Store]) -> Iterator[float]:
        """Node by node: how many nodes each step ran."""
        last = self._last(among)
        for value in self.sites.model.graph.inputs if self.io is Format.FP32 else ():
            if value in store:
                self._meet(value, store.read(value, None))
        before = self.stepper.executed
        for number, step in enumerate(self._steps(store)):
            self._look(step, store)
            yield self.stepper.executed - before
            before = self.stepper.executed
            if number >= last and not self.on_the_way:
                break
        beside.remove(store)
        for needs, overflow in self.on_the_way.values():
            store.drop_beside(overflow.variant)
            if overflow.variant:  # it has come to an output
                self.found.add(needs)

    def _look(self, step: Step, store: Store) -> None:
        outside = {value for _, value, _ in self.stepper.reads(step.node, self.fp32)}
        for origin, (needs, overflow) in list(self.on_the_way.items()):
            if overflow.variant.keys().isdisjoint(outside):
                store.drop_beside(overflow.variant)
                if not overflow.variant:  # it vanished
                    del self.on_the_way[origin]
            else:
                self._follow(step, store, origin, needs, overflow)
        for needs, value, array in [*self._taken(step), *self._of_zero(step, store)]:
            if not needs <= self.kept and needs not in self.found:
                self._follow(step, store, (step.node, value), needs, Overflow({value: array}, within=SAME))
        self.clamped.take(step, store, self.fp32)
        for value, array in step.outputs.items():
            self._meet(value, array)
        self._subtract(step, store)
        for beside in (self.clamped.tensors, self.infinite, self.differences):
            store.drop_beside(beside)

    def _last(self, among: frozenset[ir.Value] | None) -> int:
        """The place of the last node that makes or takes one of these tensors; of all nodes if one is in a body."""
        places = {node: place for place, node in enumerate(self.sites.model.graph)}
        if among is None:
            return len(places)
        near = {node for value in among for node in (value.producer(), *(user for user, _ in value.uses()))}
        return max((places.get(node, len(places)) for node in near if node is not None), default=-1)

    def _meet(self, value: ir.Value, array: Array) -> None:
        if not isinstance(array, np.ndarray) or array.dtype != np.float32 or not array.size:
            return
        room = self.room.louder.get(value, 1.0)
        if max(float(array.max()), -float(array.min())) * room <= self.sites.fmt.max:
            return
        with np.errstate(over="ignore"):
            louder = array * np.float32(room)
        narrow, clamped = round_to(louder, self.sites.fmt), self.clamped.tensors.get(value)
        if clamped is not None:
            narrow = np.where(clamped != array, clamped, narrow)
        infinite = overflowed(array, narrow)
        if infinite is not None:
            maker = value.producer()
            self.infinite[value] = _Infinite(infinite, self._free(maker))

    def _taken(self, step: Step) -> Iterator[tuple[Nodes, ir.Value, Array]]:
        """What the node takes that FP16 does not hold."""
        for value in dict.fromkeys(step.node.inputs):
            known = self.infinite.get(value) if value is not None else None
            if value is not None and known is not None:
                yield known.makers | self._free(step.node), value, known.array

    def _of_zero(self, step: Step, store: Store) -> Iterator[tuple[Nodes, ir.Value, Array]]:
        """What the node takes that FP16 makes zero, where its result is not finite for that."""
        slot = _OF_ZERO.get(step.node.op_type) if not step.node.domain else None
        value = step.node.inputs[slot] if slot is not None and slot < len(step.node.inputs) else None
        if value is None or value.is_initializer() or value not in store:
            return
        array = store.read(value, None)
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            return
        gone, makers = self._gone(value, array)
        if not gone.any():
            return
        flushed = np.where(gone, np.float32(0), array)
        outputs = self.stepper.run(step.node, self.fp32, store, {value: flushed})
        if any((np.isfinite(step.outputs[v]) & ~np.isfinite(changed)).any() for v, changed in outputs.items()):
            around = frozenset() if value in self.unguarded else self._free(value.producer()) | self._free(step.node)
            yield around | makers, value, flushed

    def _gone(self, value: ir.Value, array: Array) -> tuple[Array, Nodes]:
        """Where FP16 may make zero of what is not, and who else would have to be in FP32."""
        if value in self.unguarded:
            return array != 0, frozenset[ir.Node]().union(*map(self._free, self.unguarded[value]))
        known = self.differences.get(value)
        quieter = array / np.float32(self.room.quieter.get(value, 1.0))
        gone = round_to(quieter, self.sites.fmt) == 0
        if known is not None:
            gone |= np.abs(quieter) <= known.resolution
        return gone & (array != 0), known.makers if known is not None else frozenset()

    def _subtract(self, step: Step, store: Store) -> None:
        """Of a sum that may be near zero, and that something divides by: what the rounding of its terms hides."""
        if not _is_sum(step.node):
            return
        (value,), terms = step.node.outputs, [term for term in step.node.inputs if term is not None]
        if not any(_OF_ZERO.get(node.op_type) == slot and not node.domain for node, slot in value.uses()):
            return
        arrays = [store.read(term, None) for term in terms]
        if any(not isinstance(array, np.ndarray) or array.dtype != np.float32 for array in arrays):
            return
        makers = frozenset[ir.Node]().union(*(self._free(term.producer()) for term in terms))
        with np.errstate(divide="ignore"):
            largest = np.exp2(np.floor(np.log2(np.maximum(np.abs(arrays[0]), np.abs(arrays[1])))))
        self.differences[value] = _Difference(largest * np.float32(self.sites.fmt.unit_roundoff), makers)

    def _follow(self, step: Step, store: Store, origin: Origin, needs: Nodes, overflow: Overflow) -> None:
        self.on_the_way[origin] = needs, overflow
        if overflow.follow(self.stepper, step, self.fp32, store):
            self.found.add(needs)
            del self.on_the_way[origin]
        elif origin[0] is step.node:
            overflow.variant.pop(origin[1], None)  # its other readers are followed by themselves

    def _free(self, node: ir.Node | None) -> Nodes:
        """The node, where it is free to be in FP16."""
        free = node is not None and node in self.sites.of and self.sites.of[node].free
        return frozenset({node}) if free and node is not None else frozenset()
