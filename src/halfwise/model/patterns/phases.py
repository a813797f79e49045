"""Phases: values that nothing is done with but to multiply them by constants, and take sines and cosines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.moving import FROM_FIRST, only_moves
from halfwise.model.patterns.view import Use, View, attribute

__all__ = ["WAVES", "PhaseWays"]

WAVES = ("Sin", "Cos")
_TURN = 2.0 * math.pi
_ALIKE = 4e-7  # two roundings to FP32, with room
_HARMONICS = 4096
_PARTS = range(1, 9)  # of the smallest factor, in which the period is looked for


class PhaseWays:
    """The ways from values to sines and cosines."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[ir.Value, frozenset[float] | None] = {}
        if next(view.of(*WAVES), None) is not None:
            for node in reversed(view.model.nodes):  # readers first: no chain is too long
                self._known.update((output, self._factors(output)) for output in node.outputs)

    def start(self, phase: ir.Value, high: Mapping[str, float]) -> tuple[ir.Value, list[ir.Node]]:
        """The first value behind a phase from which a wrap leaves all sines as they are, and what lies between."""
        between: list[ir.Node] = []
        while (node := phase.producer()) is not None:
            slots = [slot for slot, _ in enumerate(node.inputs) if self._through(node, slot) is not None]
            values = [v for slot in slots if (v := node.inputs[slot]) is not None and not v.is_initializer()]
            if not values or phase.is_graph_output():
                break
            before = max(values, key=lambda value: high.get(value.name or "", 0.0))
            if self.period(before) is None:
                break
            phase = before
            between.append(node)
        return phase, between

    def uses(self, value: ir.Value) -> list[Use]:
        """Where it is read on the way to sines alone, in its own graph."""
        graph = value.graph
        return [
            (node, slot)
            for node, slot in value.uses()
            if self._through(node, slot) is not None and (graph is None or node.graph is graph)
        ]

    def period(self, value: ir.Value) -> float | None:
        """What may be taken off a value, any number of times."""
        return _period({abs(f) for node, slot in self.uses(value) for f in self._through(node, slot) or ()} - {0.0})

    def _factors(self, value: ir.Value) -> frozenset[float] | None:
        """By what it is multiplied until it is a phase; None where something else is done with it, too."""
        if value in self._known:
            return self._known[value]
        ways = [self._through(node, slot) for node, slot in value.uses()]
        if not ways or None in ways or value.is_graph_output():
            return None
        return frozenset(chain.from_iterable(way for way in ways if way is not None))

    def _through(self, node: ir.Node, slot: int) -> frozenset[float] | None:
        """The same through one reader."""
        if node.domain or not node.outputs or node.outputs[0].dtype is not ir.DataType.FLOAT:
            return None
        if node.op_type in WAVES:
            return frozenset({1.0})
        if node.op_type in ("Add", "Sub", "Neg") or (slot == 0 and (_hands_on(node) or self._wraps(node))):
            factors = np.ones(1)
        elif node.op_type in ("Mul", "Div"):
            constant = self._constant(node, slot)
            if constant is None:
                return None
            factors = constant if node.op_type == "Mul" else 1.0 / np.where(constant == 0.0, np.nan, constant)
        else:
            return None
        behind = [self._known.get(output) for output in node.outputs]
        after = frozenset(chain.from_iterable(each for each in behind if each is not None))
        factors = np.unique(factors)
        if None in behind or factors.size * len(after) > _HARMONICS:
            return None
        return frozenset(float(one) * other for one in factors for other in after)

    def _wraps(self, node: ir.Node) -> bool:
        """Whether it takes whole periods off its first input."""
        step = self._view.scalar(node.inputs[1]) if node.op_type == "Mod" else None
        period = _period(set(map(abs, self._known.get(node.outputs[0]) or ())) - {0.0})
        return step is not None and period is not None and _is_whole(step / period)

    def _constant(self, node: ir.Node, slot: int) -> NDArray[np.float64] | None:
        """What a value is multiplied with, or divided by."""
        other = node.inputs[1 - slot]
        if node.op_type == "Div" and slot == 1:
            return None
        array = self._view.constant(other)
        return np.asarray(array, np.float64) if array is not None and array.size else None


def _period(factors: set[float]) -> float | None:
    """Of a value whose multiples by these factors are phases."""
    if not factors or not all(map(math.isfinite, factors)):
        return None
    for part in _PARTS:
        step = min(factors) / part
        if all(_is_whole(factor / step) for factor in factors):
            turns = step / _TURN
            return 1.0 if _is_whole(turns) else 1.0 / turns
    return None


def _hands_on(node: ir.Node) -> bool:
    """Whether its values are those of its first input."""
    if node.op_type == "Resize":
        return bool(attribute(node, "mode", "nearest") == "nearest")
    return node.op_type in FROM_FIRST and only_moves(node)


def _is_whole(ratio: float) -> bool:
    return ratio > 0.5 and abs(ratio - round(ratio)) <= _ALIKE * ratio
