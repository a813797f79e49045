"""Reverts kept nodes to FP16, one at a time, and measures: only what lies behind a node runs again, beside the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.contents import tensors_in
from halfwise.core.errors import InputError
from halfwise.core.fast_casts import rounded
from halfwise.core.formats import Format
from halfwise.emulation.stepper import Step, Stepper
from halfwise.emulation.store import Store
from halfwise.precision.assignment import Assignment

__all__ = ["ROOM", "revert_alone"]

Array = NDArray[Any]

# Bytes of tensors that differ, beside as many as the run itself held at most; of a model of many weights more.
ROOM, MOST_ROOM = 1 << 25, 1 << 29
WEIGHTS_TO_ROOM = 8


def revert_alone(
    stepper: Stepper,
    assignment: Assignment,
    nodes: Iterable[ir.Node],
    feed: Mapping[str, Array],
    judge: Callable[[Mapping[str, Array]], float],
    most: float = math.inf,
) -> dict[ir.Node, float]:
    """The ratio on one sample with each of `nodes` (of the main graph) alone reverted to the narrow format.

    Trials share a walk: a trial starts at its node and holds only the tensors in which it differs. Those for which
    there is no room wait for another walk, which none is begun of where `most` nodes were executed: they have no ratio.
    """
    ratios: dict[ir.Node, float] = {}
    waiting, begun = list(nodes), stepper.executed
    while waiting and (not ratios or stepper.executed - begun < most):
        walk = _Walk(stepper, assignment, waiting, feed)
        walk.run()
        ratios.update(walk.ratios(judge))
        waiting = [node for node in waiting if node not in ratios]
    return ratios


class _Walk:
    """One run of the model, and trials beside it."""

    def __init__(
        self, stepper: Stepper, assignment: Assignment, nodes: Iterable[ir.Node], feed: Mapping[str, Array]
    ) -> None:
        self.stepper = stepper
        self.assignment = assignment
        self.store = Store(stepper.emulator, assignment, feed)
        self.trials = {node: _Trial(node, assignment) for node in nodes}
        self.refused: set[ir.Node] = set()
        weights = assignment.sites.model.weight_bytes
        self.room = max(ROOM, min(weights // WEIGHTS_TO_ROOM, MOST_ROOM))

    def run(self) -> None:
        active: list[_Trial] = []
        most = 0  # bytes that the run itself held
        for step in self.stepper.walk(self.store):
            most = max(most, self.store.nbytes)
            active = self._follow(active, step, self.room + most)
            if step.node in self.trials:
                trial = self.trials[step.node]
                with _refusing(trial, self.refused):
                    trial.begin(self.stepper, step.outputs, self.store)
                    active.append(trial)
            self._put_off(active, sum(each.nbytes for each in active), self.room + most)

    def _follow(self, active: Sequence[_Trial], step: Step, room: int) -> list[_Trial]:
        """Those that may go on. What there is by far no room for is put off before it runs the node."""
        outside, going, left = self.stepper.outside(step.node), list[_Trial](), list(active)
        held = sum(trial.nbytes for trial in active)
        while left:
            trial = left.pop(0)
            held -= trial.nbytes
            with _refusing(trial, self.refused):
                trial.follow(self.stepper, step.node, outside, step.outputs, self.store)
                self.store.drop_beside(trial.changed)
                held += trial.nbytes
                going.append(trial)
            held = self._put_off(left, held, room + ROOM, least=0 if going else 1)
        return going

    def _put_off(self, trials: list[_Trial], held: int, room: int, least: int = 1) -> int:
        """Bytes that are held without the last to begin, which have the least to lose, as far as there is no room."""
        while held > room and len(trials) > least:
            last = trials.pop()
            held -= last.nbytes
            del self.trials[last.node]
        return held

    def ratios(self, judge: Callable[[Mapping[str, Array]], float]) -> dict[ir.Node, float]:
        """Of those that had room to the end."""
        model, found = self.assignment.sites.model, dict.fromkeys(self.refused, math.inf)
        outputs = {
            v: self.assignment.outward(v, model.graph) if v.is_graph_output() else None for v in model.judged_values
        }
        base = {v.name or "": self.store.read(v, fmt) for v, fmt in outputs.items()}
        for node, trial in self.trials.items():
            if node not in self.refused:
                changed = {v.name or "": trial.read(v, fmt) for v, fmt in outputs.items() if v in trial.changed}
                found[node] = judge({**base, **changed})
        return found


@contextmanager
def _refusing(trial: _Trial, refused: set[ir.Node]) -> Iterator[None]:
    """A trial that the runtime refuses, as of an index beyond its table, has failed; the others go on."""
    try:
        yield
    except InputError:
        refused.add(trial.node)


class _Trial:
    """One reverted node: the live tensors that differ from the run beside it."""

    def __init__(self, node: ir.Node, base: Assignment) -> None:
        self.node = node
        self.base = base
        self.changed: dict[ir.Value, Any] = {}

    def begin(self, stepper: Stepper, outputs: Mapping[ir.Value, Array], store: Store) -> None:
        """The node itself, narrow; its outputs are kept narrow from here on."""
        narrow = Assignment(self.base.sites, {**self.base.formats, self.node: self.base.sites.fmt}, self.base.io)
        for value, array in stepper.run(self.node, narrow, store).items():
            if not _equal(array, outputs[value]):
                self.changed[value] = array

    def follow(
        self,
        stepper: Stepper,
        node: ir.Node,
        outside: frozenset[ir.Value],
        outputs: Mapping[ir.Value, Array],
        store: Store,
    ) -> None:
        """A node behind it, where it takes something that differs."""
        if self.changed.keys().isdisjoint(outside) or not self._sees_change(stepper, node, store):
            return
        for value, array in stepper.run(node, self.base, store, self.changed).items():
            if not _equal(array, outputs[value]):
                self.changed[value] = array

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in tensors_in(self.changed.values()))

    def read(self, value: ir.Value, fmt: Format | None) -> Array:
        array = self.changed[value]
        return array if fmt is None or fmt is self.base.stored(value) else rounded(array, fmt)

    def _sees_change(self, stepper: Stepper, node: ir.Node, store: Store) -> bool:
        """Rounding on the way in may hide the difference."""
        for _, value, fmt in stepper.reads(node, self.base):
            if value not in self.changed:
                continue
            if fmt is None or fmt is self.base.stored(value):
                return True
            if not _equal(self.read(value, fmt), store.read(value, fmt)):
                return True
        return False


def _equal(a: Array, b: Array) -> bool:
    """Bit by bit."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or a.shape != b.shape:
        return False
    if a.dtype == np.float32 and b.dtype == np.float32:
        return bool((a.view(np.int32) == b.view(np.int32)).all())
    return bool(np.array_equal(a, b))
