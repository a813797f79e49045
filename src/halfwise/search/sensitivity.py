"""Measures, in one walk over the FP32 model and back, what each rounding does to the outputs, and what overflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import Helper
from halfwise.core.formats import Format, round_to
from halfwise.core.output_kinds import OutputKind
from halfwise.emulation.branches import branch_taken
from halfwise.emulation.stepper import Step, Stepper
from halfwise.emulation.store import Store
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.absorption import Overflow, overflowed
from halfwise.search.adjoint import Adjoint
from halfwise.search.effects import Sensitivity
from halfwise.search.gradients import PROBES, Gradients
from halfwise.search.stored_sums import lost_inside
from halfwise.search.tape import Tape
from halfwise.search.tensor_statistics import StatisticsCollector, TensorStatistics

__all__ = ["Sensitivity", "measure_sensitivity", "sensitivity_by_output"]

Array = NDArray[Any]

SHORT = 1  # probes on a way back that ranks nothing
GRADIENT_BYTES = 1 << 27  # of the probes that go back together, at the widest tensor
MOST_GRADIENT_BYTES = 1 << 29  # where the weights, which are not held then, take as much


def measure_sensitivity(
    stepper: Stepper,
    sites: Sites,
    feeds: Mapping[str, Array],
    into: Sensitivity,
    seed: int = 0,
    weights: Mapping[str, float] | None = None,
    kinds: Sequence[OutputKind] = (),
    apart: Sequence[Stepper] = (),
    collect: bool = False,
    probes: int = PROBES,
    enough: Callable[[], bool] | None = None,
) -> TensorStatistics | None:
    """Walk one sample forwards, following overflows, and backwards, following what reaches the outputs.

    `weights` say by how much an output's relative error counts more or less than that of the others, `kinds` what it
    is relative to. `apart`: other kernels that judge, and may lose values inside a node. With `collect`, what the
    tensors held is given back.
    Without `probes` nothing is followed backwards; with `enough` one goes back first, and the others only where that
    is not enough by what is in `into` then. `stepper.executed` counts a node once per execution, and once per probe
    for its backward step.
    """
    fp32 = Assignment(sites, {})
    tape = Tape(stepper, fp32, feeds)
    forward = _Forward(stepper, sites, into, fp32, apart)
    with Helper() as helper:
        statistics = forward.run(feeds, tape, helper if collect else None)
        by_name = {kind.output: kind for kind in kinds}
        way = _WayBack(stepper, sites, fp32, tape, helper, seed, weights or {}, by_name)
        way.follow(into, probes, enough=enough)
    return statistics


def sensitivity_by_output(
    stepper: Stepper, sites: Sites, feeds: Mapping[str, Array], outputs: Sequence[str]
) -> Iterator[tuple[str, Sensitivity]]:
    """The same of one output at a time, each as its way back is done; the walk forwards is one for all."""
    fp32, ahead = Assignment(sites, {}), Sensitivity()
    tape = Tape(stepper, fp32, feeds)
    _Forward(stepper, sites, ahead, fp32, ()).run(feeds, tape, None)
    with Helper() as helper:
        for name in outputs:
            found = ahead.copy()
            way = _WayBack(stepper, sites, fp32, tape, helper, 0, {}, {}, outputs=frozenset({name}))
            way.follow(found, PROBES, again=name != outputs[-1])
            yield name, found


@dataclass(frozen=True)
class _WayBack:
    """From the outputs, as often as it is followed, over the tape of one sample."""

    stepper: Stepper
    sites: Sites
    fp32: Assignment
    tape: Tape
    helper: Helper
    seed: int
    weights: Mapping[str, float]
    kinds: Mapping[str, OutputKind]
    outputs: frozenset[str] | None = None

    def follow(
        self, into: Sensitivity, probes: int, again: bool = False, enough: Callable[[], bool] | None = None
    ) -> None:
        room = max(GRADIENT_BYTES, min(self.sites.model.emulated_bytes, MOST_GRADIENT_BYTES))
        first = SHORT if enough is not None else 0
        turns = [*[first] * bool(first), *_turns(probes - first, self.tape.widest, room)]
        seeds = (self.seed, into.samples)
        for turn, count in enumerate(turns):
            found, own = (into, seeds) if len(turns) == 1 else (Sensitivity(), (*seeds, turn))
            known = Gradients(self.stepper, self.sites, self.fp32, self.tape, found, own, count, self.helper)
            Adjoint(known, self.weights, self.kinds, self.outputs).run(again or turn < len(turns) - 1)
            if enough is not None and turn == 0:
                before = into.copy()
                into.take(found, 1)
                into.samples += 1
                if enough():
                    return
                into.back_to(before)
            if found is not into:
                into.take(found, count / probes)
        into.samples += bool(turns)


def _turns(probes: int, widest: int, room: int) -> list[int]:
    """How many probes go back together, turn by turn: their gradients of the widest tensor take no more than `room`."""
    turns = -(-probes // max(room // max(widest, 1), 1))
    return [probes // turns + (turn < probes % turns) for turn in range(turns)]


class _Forward:
    def __init__(
        self, stepper: Stepper, sites: Sites, into: Sensitivity, fp32: Assignment, apart: Sequence[Stepper]
    ) -> None:
        self.apart = apart
        self.stepper = stepper
        self.sites = sites
        self.into = into
        self.fp32 = fp32
        self.overflowing: dict[tuple[ir.Node | None, ir.Value], Overflow] = {}

    def run(self, feeds: Mapping[str, Array], tape: Tape, helper: Helper | None) -> TensorStatistics | None:
        store = Store(self.stepper.emulator, self.fp32, feeds)
        seen = StatisticsCollector(self.stepper, self.sites, store, helper) if helper is not None else None
        for value in self.sites.model.graph.inputs:
            if value in store:
                self._meet(value, store.read(value, None))
        for step in self.stepper.walk(store, branches=True):
            for value, array in step.outputs.items():
                self._meet(value, array)
            self._follow_overflows(step, store)
            self._clamp(step, store)
            self.into.breaks.update((step.node, value) for value in lost_inside(self.apart, self.sites, step, store))
            tape.record(step, store)
            if seen is not None:
                seen.take(step)
        for origin, overflow in self.overflowing.items():
            store.drop_beside(overflow.variant)
            if overflow.variant:
                self._condemn(*origin)
        return None if seen is None else seen.statistics

    def _meet(self, value: ir.Value, array: Array) -> None:
        """A tensor has just been made: whether rounding it would overflow."""
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            return
        self.into.size[value] = array.size
        if array.size and max(float(array.max()), -float(array.min())) <= self.sites.fmt.max:
            return
        if value in self.into.overflows:  # in another sample
            return
        infinite = overflowed(array, round_to(array, self.sites.fmt))
        if infinite is not None:
            self.overflowing[None, value] = Overflow({value: infinite})

    def _clamp(self, step: Step, store: Store) -> None:
        """Weights beyond the format's range are clamped to it, which is no small change either."""
        site = self.sites.of[step.node]
        for slot, value in enumerate(step.node.inputs):
            if value is None or not value.is_initializer() or not site.free or not site.inputs[slot]:
                continue
            if self.stepper.largest(value) <= self.sites.fmt.max or (step.node, value) in self.into.breaks:
                continue
            wide = store.read(value, Format.FP32)
            beyond = np.isfinite(wide) & (np.abs(wide) > self.sites.fmt.max)
            if beyond.any():
                clamped = np.where(beyond, store.read(value, self.sites.fmt), wide)
                self._follow(step, store, (step.node, value), Overflow({value: clamped}))

    def _follow_overflows(self, step: Step, store: Store) -> None:
        """Let each overflow run on for a few nodes: a mask's vanishes in the softmax, a norm's does not."""
        if not self.overflowing:
            return
        branch = branch_taken(step.node, store)
        read = (value for _, value, _ in self.stepper.reads(step.node, self.fp32)) if branch is None else branch.outputs
        outside = set(read)
        for origin, overflow in list(self.overflowing.items()):
            if overflow.variant.keys().isdisjoint(outside):
                store.drop_beside(overflow.variant)
                if not overflow.variant:  # it vanished
                    del self.overflowing[origin]
            else:
                self._follow(step, store, origin, overflow)

    def _follow(self, step: Step, store: Store, origin: tuple[ir.Node | None, ir.Value], overflow: Overflow) -> None:
        self.overflowing[origin] = overflow
        if overflow.follow(self.stepper, step, self.fp32, store):
            self._condemn(*origin)
            del self.overflowing[origin]

    def _condemn(self, reader: ir.Node | None, value: ir.Value) -> None:
        if reader is None:
            self.into.overflows.add(value)
        else:
            self.into.breaks.add((reader, value))
