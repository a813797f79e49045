"""Operators whose results jump where a computed number crosses another: choices, thresholds, steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.model.families import COMPARISONS
from halfwise.model.model import Model

__all__ = ["jumping"]

_ORDERS = COMPARISONS - {"Equal"}
_JUMPS = COMPARISONS | frozenset(
    "ArgMax ArgMin TopK NonMaxSuppression NonZero Unique Hardmax Floor Ceil Round Sign Mod".split()
)
_ROUTERS = frozenset({"MoE", "QMoE"})  # of ONNX Runtime's own: the largest scores choose
_AT: dict[str, Callable[..., Any]] = {
    "Identity": lambda x: x,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Neg": np.negative,
    "Abs": np.abs,
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Relu": lambda x: np.maximum(x, 0.0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "Softplus": lambda x: np.logaddexp(0.0, x),
}
_DEEP = 8  # operators between what is compared and what is chosen


def jumping(model: Model) -> Iterator[ir.Node]:
    """Where a comparison of computed numbers may decide between outputs that lie far apart."""
    for node in model.nodes:
        floats = (v for v in node.inputs if v is not None and v.dtype and v.dtype.is_floating_point())
        chooses = node.op_type in (_ROUTERS if node.domain else _JUMPS)
        if chooses and any(True for _ in floats) and not _continuous(node):
            yield node


def _continuous(node: ir.Node) -> bool:
    """Whether it is a threshold at which both that it chooses between are equal: x > 20 between x and Softplus(x)."""
    if node.op_type not in _ORDERS or len(node.inputs) != 2 or node.outputs[0].is_graph_output():
        return False
    users = list(node.outputs[0].uses())
    if not users or any(user.op_type != "Where" or user.domain or slot for user, slot in users):
        return False
    for moving, fixed in (node.inputs, node.inputs[::-1]):
        limit = _scalar(fixed)
        if limit is not None and moving is not None:
            return all(_equal(*(_at(value, moving, limit) for value in user.inputs[1:])) for user, _ in users)
    return False


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    return abs(one - other) <= Format.FP16.unit_roundoff * max(abs(one), abs(other))


def _at(value: ir.Value | None, moving: ir.Value, limit: float, deep: int = _DEEP) -> float | None:
    """What a value is where the one that moves is at the limit; None where more than that decides."""
    if value is moving:
        return limit
    node = None if value is None else value.producer()
    if node is None or node.domain or node.op_type not in _AT or not deep:
        return _scalar(value)
    given = [_at(each, moving, limit, deep - 1) for each in node.inputs]
    if any(each is None for each in given):
        return None
    with np.errstate(all="ignore"):
        found = float(_AT[node.op_type](*given))
    return found if np.isfinite(found) else None


def _scalar(value: ir.Value | None) -> float | None:
    stored = None if value is None else value.const_value
    return float(stored.numpy().reshape(())) if stored is not None and stored.size == 1 else None
