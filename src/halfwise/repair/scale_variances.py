"""Variances of a BatchNormalization beyond FP16, in units of a power of four: epsilon and the scale take it back."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.view import attribute
from halfwise.repair.graph_edit import whole
from halfwise.repair.rule import Repair
from halfwise.repair.scale_algebra import algebra

__all__ = ["scaled_variances"]

_LARGEST, _SMALLEST = 65504.0, float(np.finfo(np.float32).tiny)
_CALM = 15  # log2 of the largest variance afterwards


def scaled_variances(rule: str, model: Model) -> Iterator[Repair]:
    """(x - mean) * (2^k scale) / sqrt(4^k variance + 4^k epsilon) is what it was."""
    for node in model.graph:
        name, power = node.name or "", _power(node)
        if not power:
            continue
        constants = [
            {"node": name, "slot": slot, "shape": [], "powers": power * each} for slot, each in ((4, 2), (1, 1))
        ]
        epsilons = [{"node": name, "power": power}]
        edits = {"constants": constants, "fronts": [], "epsilons": epsilons, "after": []}
        told = algebra(constants, (), epsilons, ())
        yield Repair(rule, (name,), told, {"operators": [node.op_type], "scaled": {}, **edits})


def _power(node: ir.Node) -> int:
    """0 where nothing is beyond FP16, or a number would leave FP32's normal ones."""
    if node.op_type != "BatchNormalization" or node.domain or attribute(node, "training_mode", 0):
        return 0
    variance, scale = (whole(node.inputs[slot]) for slot in (4, 1))
    if variance is None or scale is None:
        return 0
    largest = float(variance.max(initial=0.0))
    if not _LARGEST < largest < math.inf:
        return 0
    power = -math.ceil((math.log2(largest) - _CALM) / 2)
    changed = [(variance, 2 * power), (scale, power), (np.array([attribute(node, "epsilon", 1e-5)]), 2 * power)]
    small = (np.abs(array[array != 0]).min(initial=math.inf) * 2.0**each for array, each in changed)
    return power if all(each >= _SMALLEST for each in small) else 0
