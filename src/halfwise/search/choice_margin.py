"""How far apart the numbers lie that a choice compares, measured by their errors.

Where numbers of a smooth kind keep `n` times their error apart on one input, about one input in `n` has nearer ones:
so many errors say as much as so many inputs on which the choice did not turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.model.families import COMPARISONS

__all__ = ["margin"]

Array = NDArray[Any]
Outputs = Mapping[str, Array]


def margin(node: ir.Node, right: Outputs, found: Outputs) -> float:
    """The least distance over its error; 0 of a choice of another kind, infinite where nothing that counts has one."""
    if node.domain:
        return 0.0
    if node.op_type in COMPARISONS:
        a, b, a_found, b_found = (_held(value, side) for side in (right, found) for value in node.inputs)
        if a is None or b is None or a_found is None or b_found is None:
            return 0.0
        return _least(a - b, _error(a, a_found) + _error(b, b_found))
    if node.op_type in ("ArgMax", "ArgMin"):
        return _of_best(node, right, found)
    return 0.0


def _of_best(node: ir.Node, right: Outputs, found: Outputs) -> float:
    """Between the best and the next, along the axis."""
    values, other = (_held(node.inputs[0], side) for side in (right, found))
    if values is None or other is None:
        return 0.0
    axis, sign = node.attributes.get_int("axis", 0), -1.0 if node.op_type == "ArgMin" else 1.0
    ranked = np.moveaxis(sign * values, axis, -1)
    if ranked.shape[-1] < 2:
        return np.inf
    errors = np.moveaxis(_error(values, other), axis, -1)
    best = np.argpartition(ranked, -2, axis=-1)[..., -2:]
    distances = np.abs(np.diff(np.take_along_axis(ranked, best, -1), axis=-1))
    return _least(distances, np.take_along_axis(errors, best, -1).sum(axis=-1, keepdims=True))


def _least(distances: Array, errors: Array) -> float:
    distances, errors = np.broadcast_arrays(np.abs(distances), errors)
    moved = np.isfinite(distances) & (errors > 0)
    return float(np.min(distances[moved] / errors[moved], initial=np.inf))


def _error(right: Array, found: Array) -> Array:
    """0 where a mask is clipped: it lies as far off on every input."""
    error = np.abs(right - found)
    return np.where(np.isfinite(error) & (np.abs(right) <= Format.FP16.max), error, 0.0)


def _held(value: ir.Value | None, outputs: Outputs) -> Array | None:
    """In FP64: a constant, or what was looked at."""
    if value is None:
        return None
    if value.const_value is not None:
        return np.asarray(value.const_value.numpy(), np.float64)
    return np.asarray(outputs[value.name or ""], np.float64) if (value.name or "") in outputs else None
