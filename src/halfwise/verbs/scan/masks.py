"""Follows constants too large for FP16 through a graph, to see which of them are masks and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from halfwise.model.families import QUANTISERS
from halfwise.model.moving import MOVES
from halfwise.model.patterns.view import View
from halfwise.precision.sites import Sites

__all__ = ["Mask", "follow_masks"]

_SINKS = frozenset({
    "Softmax", "LogSoftmax", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin", "Max", "Min", "MaxPool", "Attention",
    "ReduceLogSumExp",
})  # fmt: skip
_SOFT = frozenset({"Softmax", "LogSoftmax", "Attention", "ReduceLogSumExp"})
_PICKS = {"Min": -1, "Max": 1}  # element by element, and the sign of what wins


@dataclass
class Mask:
    """A large constant that ends where only the largest or smallest counts, and what happens to it on its way."""

    source: ir.Value
    number: float
    added: list[ir.Node] = field(default_factory=list)
    chosen: list[ir.Node] = field(default_factory=list)
    combined: list[ir.Node] = field(default_factory=list)  # with another mask, or with a factor over 1
    reached: bool = False


def follow_masks(view: View, sites: Sites, large: Mapping[ir.Value, float]) -> list[Mask]:
    """`large` holds each constant's number of the largest magnitude. One pass over the nodes in their order."""
    if not large:
        return []
    carried: dict[ir.Value, dict[int, int]] = {}  # value -> which masks it carries, and with which sign
    masks = [Mask(source, number) for source, number in large.items()]
    for index, mask in enumerate(masks):
        carried[mask.source] = {index: 1 if mask.number > 0 else -1}
    for node in view.model.nodes:
        loads = [carried.get(value, {}) if value is not None else {} for value in node.inputs]
        if any(loads) and not (sites.of[node].pinned and not node.domain):
            load = _passed(view, node, loads, masks)
            if load:
                carried.update((out, load) for out in node.outputs)
    return [mask for mask in masks if mask.reached]


def _passed(view: View, node: ir.Node, loads: list[dict[int, int]], masks: list[Mask]) -> dict[int, int]:
    """What a node's outputs carry on; marks the masks that it adds, chooses, combines or ends."""
    op = node.op_type
    together = {index: sign for load in loads for index, sign in load.items()}
    if not node.domain and op in _PICKS and not any(_ends(masks[index]) for index in together):
        return {index: sign for index, sign in together.items() if sign == _PICKS[op]}  # masks joined into one
    if node.domain or op in _SINKS:
        for index, sign in together.items():
            # What is added to make a softmax ignore an element is negative; a large positive number is a mistake.
            mask = masks[index]
            if _ends(mask):
                mask.reached |= bool(node.domain) or op not in _SOFT or sign < 0
        return {}
    if op == "Where":
        chosen = {index: sign for load in loads[1:] for index, sign in load.items()}
        for index in chosen:
            masks[index].chosen.append(node)
        return chosen
    if op in ("Add", "Sub", "Sum"):
        if op == "Sub" and len(loads) == 2:
            loads = [loads[0], _flipped(loads[1])]
            together = {**loads[0], **loads[1]}
        both = sum(1 for load in loads if load) > 1
        for index in together:
            (masks[index].combined if both else masks[index].added).append(node)
        return together
    if op in QUANTISERS:  # a scale stands for what it makes
        for index in loads[1]:
            masks[index].chosen.append(node)
        return {**loads[0], **loads[1]}
    if op in ("Mul", "Div"):
        return _multiplied(view, node, loads, masks)
    if op == "Neg":
        return _flipped(together)
    return loads[0] if op in MOVES and op != "Concat" else together if op == "Concat" else {}


def _ends(mask: Mask) -> bool:
    """Whether it has met what it masks: a choice among these is where it ends."""
    return bool(mask.added or mask.chosen or mask.combined)


def _multiplied(view: View, node: ir.Node, loads: list[dict[int, int]], masks: list[Mask]) -> dict[int, int]:
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
    if abs(factor) > 1.0:
        for index in loads[slot]:
            masks[index].combined.append(node)
    return _flipped(loads[slot]) if factor < 0 else loads[slot]


def _flipped(load: dict[int, int]) -> dict[int, int]:
    return {index: -sign for index, sign in load.items()}
