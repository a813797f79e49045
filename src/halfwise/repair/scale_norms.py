"""How far the result of a norm reaches, whatever it reads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from halfwise.model.patterns.view import attribute
from halfwise.repair.scale_walk import count

__all__ = ["norm_reach"]


def norm_reach(node: ir.Node, dims: Sequence[int | None]) -> float:
    """Of elements whose mean square is 1 or less, none is beyond the root of their number."""
    if node.op_type in ("InstanceNormalization", "GroupNormalization"):
        number = count(dims[2:] if node.op_type == "InstanceNormalization" else dims[1:])
        groups = int(attribute(node, "num_groups", 1)) if node.op_type == "GroupNormalization" else 1
        return math.inf if number is None else math.sqrt(number / groups)
    number = count(dims[int(attribute(node, "axis", -1)) % len(dims) :])
    return math.inf if number is None else math.sqrt(number)
