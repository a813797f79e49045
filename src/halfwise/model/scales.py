"""Scales of quantisers among the weights: training does not make them, and a large one stands for larger numbers."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from halfwise.model.families import QUANTISERS

__all__ = ["farthest", "is_scale"]

_SCALE, _ZERO = 1, 2
_ABOUT = 1.01  # of INT8, one side reaches one step farther
_OWN = {"MatMulNBits": 2, "GatherBlockQuantized": 2}  # of ONNX Runtime's operators the slot of the scales
_INTEGER = "QLinear"  # operators whose float inputs are scales


def is_scale(value: ir.Value) -> bool:
    """Whether a float weight is read as a scale alone."""
    return bool(value.uses()) and all(_reads_scale(node, slot) for node, slot in value.uses())


def farthest(scale: ir.Value, largest: float) -> float:
    """The number farthest from zero that the largest scale makes; below zero where both sides reach about as far."""
    below, above = 0.0, 0.0
    for node, _ in scale.uses():
        held = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
        kind = held.dtype if held is not None else None
        if node.op_type in QUANTISERS and kind is not None and kind.is_integer():
            origin = _origin(node)
            ends = float(kind.min - origin) * largest, float(kind.max - origin) * largest
            below, above = min(below, ends[0]), max(above, ends[1])
    found = float(above if above > -_ABOUT * below else below)
    return found if math.isfinite(found) and found else largest


def _origin(node: ir.Node) -> float:
    zero = node.inputs[_ZERO] if len(node.inputs) > _ZERO else None
    return float(np.median(zero.const_value.numpy())) if zero is not None and zero.const_value is not None else 0.0


def _reads_scale(node: ir.Node, slot: int) -> bool:
    if node.op_type in QUANTISERS:
        return slot == _SCALE
    return slot == _OWN.get(node.op_type) or node.op_type.startswith(_INTEGER)
