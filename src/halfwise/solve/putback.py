"""Puts kept nodes back, one at a time, and measures: only what lies behind a node is run again, beside the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.engine.stepper import Stepper, Store
from halfwise.formats import Format, round_to
from halfwise.precision import Assignment

__all__ = ["Range", "put_back"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Range:
    """The finite values a node's outputs took in FP32."""

    low: float
    high: float


def put_back(
    stepper: Stepper,
    assignment: Assignment,
    nodes: Iterable[ir.Node],
    feed: Mapping[str, Array],
    judge: Callable[[Mapping[str, Array]], float],
) -> dict[ir.Node, float]:
    """The load on one sample with each of `nodes` (of the main graph) alone put back into the narrow format.

    All trials share one walk: a trial starts at its node and carries only the tensors in which it differs.
    """
    sites = assignment.sites
    trials = {node: _Trial(_without(assignment, node)) for node in nodes}
    store = Store(stepper.emulator, assignment, feed)
    waiting: dict[ir.Node, _Trial] = dict(trials)
    active: list[_Trial] = []
    for step in stepper.walk(store):
        started = waiting.pop(step.node, None)
        for trial in active:
            trial.follow(stepper, step.node, step.outputs, store)
        if started is not None:
            started.follow(stepper, step.node, step.outputs, store, begin=True)
            active.append(started)
        for trial in active:
            trial.forget(store)
    graph_outputs = sites.model.graph.outputs
    base = {v.name or "": store.read(v, assignment.outward(v, sites.model.graph)) for v in graph_outputs}
    loads = {}
    for node, trial in trials.items():
        changed = {
            v.name or "": _as_read(trial.changed[v], trial.assignment.outward(v, sites.model.graph))
            for v in graph_outputs
            if v in trial.changed
        }
        loads[node] = judge({**base, **changed})
    return loads


class _Trial:
    """One node put back: the live tensors that differ from the run beside it."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.changed: dict[ir.Value, Array] = {}

    def follow(
        self, stepper: Stepper, node: ir.Node, base: Mapping[ir.Value, Array], store: Store, begin: bool = False
    ) -> None:
        if not begin and not self._sees_change(stepper, node, store):
            return
        outputs = stepper.run(node, self.assignment, store, self.changed)
        for value, array in outputs.items():
            if not _equal(array, base[value]):
                self.changed[value] = array

    def _sees_change(self, stepper: Stepper, node: ir.Node, store: Store) -> bool:
        if not self.changed:
            return False
        return any(
            value in self.changed and not _equal(_as_read(self.changed[value], fmt), store.read(value, fmt))
            for _, value, fmt in stepper.reads(node, self.assignment)
        )

    def forget(self, store: Store) -> None:
        for value in [v for v in self.changed if v not in store]:
            del self.changed[value]


def _without(assignment: Assignment, node: ir.Node) -> Assignment:
    return Assignment(assignment.sites, {**assignment.formats, node: assignment.sites.fmt}, assignment.io)


def _as_read(array: Array, fmt: Format | None) -> Array:
    return array if fmt is None else round_to(array, fmt)


def _equal(a: Array, b: Array) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    if a.shape != b.shape:
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
