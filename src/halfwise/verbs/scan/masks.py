"""Follows constants too large for FP16 through a graph, to see which of them are masks and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import onnx_ir as ir

from halfwise.model.families import QUANTISERS
from halfwise.model.moving import MOVES
from halfwise.model.patterns.view import View
from halfwise.precision.sites import Sites

__all__ = ["How", "Mask", "follow_masks"]

_SINKS = frozenset({
    "Softmax", "LogSoftmax", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin", "Max", "Min", "MaxPool", "Attention",
    "ReduceLogSumExp",
})  # fmt: skip
_SOFT = frozenset({"Softmax", "LogSoftmax", "Attention", "ReduceLogSumExp"})
_PICKS = {"Min": -1, "Max": 1}  # element by element, and the sign of what wins
# Where these reach their limits, and the sign there: minus infinity gives what FP32's large number gives.
_LIMITS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Exp", "Relu", "Softplus"), (-1,)),
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Tanh", "Erf"), (-1, 1)),
}

How = Literal["chosen", "added", "combined"]  # the last: with another mask, or with a factor over 1


@dataclass(frozen=True, eq=False)
class Step:
    """A node that did something to a large constant, and what was done before: by two ways where they met."""

    how: How
    node: ir.Node
    before: tuple[Step, ...]


@dataclass(frozen=True)
class Trail:
    """The last steps of a large constant on its way to a tensor, and the sign that it has there."""

    sign: int
    steps: tuple[Step, ...] = ()


Load = Mapping[int, Trail]  # by the number of the mask


@dataclass
class Mask:
    """A large constant that ends where only the largest or smallest counts, and what happens to it on its way there."""

    source: ir.Value
    number: float
    met: dict[Step, None] = field(default_factory=dict)
    alike: dict[Step, None] = field(default_factory=dict)  # where minus infinity does what a large number does

    @property
    def how(self) -> How:
        """The worst that happens to it."""
        found = {step.how for step in self.met}
        return "combined" if "combined" in found else "added" if "added" in found else "chosen"

    @property
    def places(self) -> list[ir.Node]:
        """Where that happens."""
        worst = self.how
        return [step.node for step in self.met if step.how == worst] or [step.node for step in self.alike]


def follow_masks(view: View, sites: Sites, large: Mapping[ir.Value, float]) -> list[Mask]:
    """`large` holds each constant's number of the largest magnitude. One pass over the nodes in their order."""
    if not large:
        return []
    carried: dict[ir.Value, Load] = {}
    masks = [Mask(source, number) for source, number in large.items()]
    for index, mask in enumerate(masks):
        carried[mask.source] = {index: Trail(1 if mask.number > 0 else -1)}
    for node in view.model.nodes:
        loads = [carried.get(value, {}) if value is not None else {} for value in node.inputs]
        if any(loads) and not (sites.of[node].pinned and not node.domain):
            load = _passed(view, node, loads, masks)
            if load:
                carried.update((out, load) for out in node.outputs)
    return [mask for mask in masks if mask.met or mask.alike]


def _passed(view: View, node: ir.Node, loads: list[Load], masks: list[Mask]) -> Load:
    """What a node's outputs carry on; marks the masks that end here."""
    op = "" if node.domain else node.op_type
    together = _together(loads)
    if op in _PICKS and not any(trail.steps for trail in together.values()):
        return {index: trail for index, trail in together.items() if trail.sign == _PICKS[op]}  # joined into one
    if op in _LIMITS:
        for index, trail in together.items():
            if trail.steps and trail.sign in _LIMITS[op]:
                _ends(trail, masks[index].alike)
        return {}
    if not op or op in _SINKS:
        for index, trail in together.items():
            # It has met what it masks: a choice among these is where it ends. What is added to make a softmax ignore
            # an element is negative; a large positive number is a mistake.
            if not trail.steps or (op in _SOFT and trail.sign > 0):
                continue
            loses = op in _PICKS and trail.sign != _PICKS[op] and not all(index in load for load in loads)
            _ends(trail, masks[index].alike if loses else masks[index].met)
        return {}
    if op == "Where":
        return _marked(_together(loads[1:]), "chosen", node)
    if op in ("Add", "Sub", "Sum"):
        if op == "Sub" and len(loads) == 2:
            loads = [loads[0], _flipped(loads[1])]
        both = sum(1 for load in loads if load) > 1
        return _marked(_together(loads), "combined" if both else "added", node)
    if op in QUANTISERS:  # a scale stands for what it makes
        return _together([loads[0], _marked(loads[1], "chosen", node)])
    if op in ("Mul", "Div"):
        return _multiplied(view, node, loads)
    if op == "Neg":
        return _flipped(together)
    return loads[0] if op in MOVES and op != "Concat" else together if op == "Concat" else {}


def _multiplied(view: View, node: ir.Node, loads: list[Load]) -> Load:
    """A product with 0 or 1 keeps a mask, with -1 flips it; one with a factor over 1 takes it out of FP16."""
    if len(loads) != 2 or (loads[0] and loads[1]) or (node.op_type == "Div" and not loads[0]):
        return {}
    slot = 0 if loads[0] else 1
    other = node.inputs[1 - slot]
    factor = view.scalar(other)
    if factor is None:
        minus = view.maker(other, "Neg", "Sub")
        flips = minus is not None and (minus.op_type == "Neg" or view.scalar(minus.inputs[1]) is not None)
        return _flipped(loads[slot]) if flips else loads[slot]
    if node.op_type == "Div":
        factor = 1.0 / factor if factor else 1.0
    load = _marked(loads[slot], "combined", node) if abs(factor) > 1.0 else loads[slot]
    return _flipped(load) if factor < 0 else load


def _ends(trail: Trail, found: dict[Step, None]) -> None:
    """All steps on the way, the first ones first; those known already are not walked again."""
    stack, new = list(trail.steps), dict[Step, None]()
    while stack:
        step = stack.pop()
        if step not in found and step not in new:
            new[step] = None
            stack.extend(step.before)
    found.update(dict.fromkeys(reversed(new)))


def _together(loads: Sequence[Load]) -> Load:
    """Two ways of one mask become one; the sign is the later one's."""
    found: dict[int, Trail] = {}
    for load in loads:
        for index, trail in load.items():
            steps = found[index].steps + trail.steps if index in found else trail.steps
            found[index] = Trail(trail.sign, tuple(dict.fromkeys(steps)))
    return found


def _flipped(load: Load) -> Load:
    return {index: Trail(-trail.sign, trail.steps) for index, trail in load.items()}


def _marked(load: Load, how: How, node: ir.Node) -> Load:
    return {index: Trail(trail.sign, (Step(how, node, trail.steps),)) for index, trail in load.items()}
