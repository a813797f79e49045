"""What an initializer is for: which nodes read it in a slot that may narrow, and what it means there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import onnx_ir as ir

from halfwise.model.families import COMPARISONS, NORMS, PRODUCTS, RECURRENT
from halfwise.model.moving import Move, movers
from halfwise.model.patterns.view import View, attribute
from halfwise.precision.sites import Sites

__all__ = ["Reading", "Role", "readings"]

_DEPTH = 4
_COMPARED = COMPARISONS | {"IsInf", "IsNaN", "Sign"}
_MOVED = movers(Move.SHAPE | Move.ORDER | Move.REPEAT | Move.CUT | Move.CAST)


class Role(Enum):
    """What a constant does to the numbers that meet it."""

    MATRIX = "a factor summed over: convolutions, matrix products, recurrent layers"
    FACTOR = "a factor of each element"
    DIVISOR = "divides each element"
    ADDEND = "added to each element"
    BOUND = "limits each element"
    CHOICE = "chosen or not, element by element"
    COMPARED = "compared with each element"
    OTHER = "anything else, such as a table that is looked up"


@dataclass(frozen=True)
class Reading:
    """One node that reads an initializer, perhaps behind a change of its shape; the axis of its output channels."""

    node: ir.Node
    role: Role
    channels: int | None = None


_PRODUCT = {1: Role.MATRIX, 2: Role.ADDEND}
_BOTH = {0: Role.MATRIX, 1: Role.MATRIX}
_BIAS = {1: Role.ADDEND}
_NORM = {1: Role.FACTOR, 2: Role.ADDEND}
_SKIPPING_NORM = {2: Role.FACTOR, 3: Role.ADDEND, 4: Role.ADDEND}

# The same of ONNX Runtime's own operators, by slot.
_OWN: Mapping[str, Mapping[int, Role]] = {
    **dict.fromkeys(("Attention", "FusedConv", "FusedGemm", "QAttention"), _PRODUCT),
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul"), _BOTH),
    **dict.fromkeys(("BiasGelu", "FastGelu", "BiasSplitGelu", "BiasAdd"), _BIAS),
    **dict.fromkeys(("SimplifiedLayerNormalization", "GroupNorm"), _NORM),
    **dict.fromkeys(("SkipLayerNormalization", "SkipGroupNorm"), _SKIPPING_NORM),
    "SkipSimplifiedLayerNormalization": {2: Role.FACTOR, 3: Role.ADDEND},
    "EmbedLayerNormalization": {5: Role.FACTOR, 6: Role.ADDEND},
}


def readings(view: View, sites: Sites, value: ir.Value, depth: int = _DEPTH) -> list[Reading]:
    found: list[Reading] = []
    for node, slot in value.uses():
        site = sites.of.get(node)
        if site is None or slot >= len(site.inputs) or not site.inputs[slot]:
            continue
        if slot == 0 and node.op_type in _MOVED and not node.domain and depth:
            after = [each for output in node.outputs for each in readings(view, sites, output, depth - 1)]
            found.extend(Reading(r.node, r.role, _moved(node, r.channels)) for r in after)
        else:
            found.append(_reading(view, node, slot))
    return found


def _moved(node: ir.Node, axis: int | None) -> int | None:
    """Where the channels lie in front of a move."""
    if axis is None or node.op_type in ("Identity", "Cast"):
        return axis
    order = attribute(node, "perm", None) if node.op_type == "Transpose" else None
    return int(order[axis]) if order is not None and axis < len(order) else None


def _reading(view: View, node: ir.Node, slot: int) -> Reading:
    op = node.op_type
    if op in _OWN and (node.domain or op == "SimplifiedLayerNormalization"):
        return Reading(node, _OWN[op].get(slot, Role.OTHER))
    if op in PRODUCTS | RECURRENT | {"Einsum"}:
        if slot < (3 if op in RECURRENT else 2):
            return Reading(node, Role.MATRIX, _channel_axis(view, node, slot))
        return Reading(node, Role.ADDEND)
    if op in NORMS or op == "BatchNormalization":
        return Reading(node, Role.FACTOR if slot == 1 else Role.ADDEND)
    if op == "Div":
        return Reading(node, Role.DIVISOR if slot == 1 else Role.FACTOR)
    if op in ("Mul", "Pow", "PRelu"):
        return Reading(node, Role.FACTOR)
    if op in ("Add", "Sub", "Sum"):
        return Reading(node, Role.ADDEND)
    if op in ("Clip", "Max", "Min"):
        return Reading(node, Role.BOUND)
    if op == "Where":
        return Reading(node, Role.CHOICE)
    return Reading(node, Role.COMPARED if op in _COMPARED else Role.OTHER)


def _channel_axis(view: View, node: ir.Node, slot: int) -> int | None:
    op, rank = node.op_type, view.rank(node.inputs[slot])
    if op in RECURRENT:
        return 1
    if slot == 0 or rank is None or rank < 2:
        return None if rank is None or rank < 2 or op not in ("MatMul", "Gemm") else rank - 2
    if op == "Conv":
        return 0
    if op == "ConvTranspose":
        return 1 if attribute(node, "group", 1) == 1 else None
    if op == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return rank - 1 if op == "MatMul" else None
