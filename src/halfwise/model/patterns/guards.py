"""Small numbers that keep a divisor or the operand of a logarithm from zero: x + epsilon, max(x, epsilon)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.moving import FROM_FIRST, Move, movers
from halfwise.model.patterns.roots import clip_bounds
from halfwise.model.patterns.softmax import find_logsumexps, find_softmaxes
from halfwise.model.patterns.view import View

__all__ = ["Guard", "find_guards"]

_STEPS = 6
_THROUGH = FROM_FIRST | movers(Move.CAST) | {"Sqrt", "ReduceSum", "Mul"}


@dataclass(frozen=True)
class Guard:
    """`nodes` leads from the guard to what it guards, a few steps on: a "division" or a "logarithm"."""

    value: ir.Value
    epsilon: float
    nodes: tuple[ir.Node, ...]
    guards: str

    def lost_in(self, below: float) -> tuple[ir.Node, ...]:
        """Those that hold it or read it while it is smaller: a root behind it may make it large enough. Where a factor
        or a power is on the way, all."""
        held = self.epsilon
        if any(node.op_type in ("Mul", "Pow") for node in self.nodes[:-1]):
            return self.nodes
        for place, node in enumerate(self.nodes):
            held = math.sqrt(held) if node.op_type == "Sqrt" else held
            if held >= below:
                return self.nodes[: place + 1]
        return self.nodes


def find_guards(view: View, below: float) -> Iterator[Guard]:
    """Smaller ones, once for each of what they guard; a sum of exponentials whose largest is 1 needs none."""
    found = [each for each in _added(view) if 0.0 < each[2] < below]
    sums = (*find_softmaxes(view), *find_logsumexps(view)) if found else ()
    large = {name for each in sums if each.details["of_each"] for name in each.nodes}
    for node, value, epsilon in found:
        if node.name not in large:
            for nodes, guards in _ways(view, node.outputs[0], _STEPS):
                yield Guard(value, epsilon, (node, *nodes), guards)


def _added(view: View) -> Iterator[tuple[ir.Node, ir.Value, float]]:
    """Nodes that add a number to a value, or hold it above one."""
    for node in view.of("Add", "Max", "Clip"):
        if node.op_type == "Clip":
            value, epsilon = node.inputs[0], clip_bounds(view, node)[0]
        else:
            value, epsilon = view.with_number(node) or (None, None)
        if value is not None and epsilon is not None:
            yield node, value, epsilon


def _ways(view: View, value: ir.Value, steps: int) -> Iterator[tuple[tuple[ir.Node, ...], str]]:
    for node, slot in view.uses(value):
        if node.domain:
            continue
        if node.op_type == "Log":
            yield (node,), "logarithm"
            continue
        power = view.scalar(node.inputs[1]) if node.op_type == "Pow" and slot == 0 else None
        if node.op_type == "Reciprocal" or (node.op_type == "Div" and slot == 1) or (power is not None and power < 0):
            yield (node,), "division"
            continue
        passes = node.op_type in _THROUGH or power is not None
        if node.op_type == "Mul":
            passes = view.scalar(node.inputs[1 - slot]) is not None
        if passes and slot == 0 and steps:
            for nodes, guards in _ways(view, node.outputs[0], steps - 1):
                yield (node, *nodes), guards
