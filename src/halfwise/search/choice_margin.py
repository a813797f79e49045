"""How far apart the numbers lie that a choice compares, measured by their errors.

Where numbers of a smooth kind keep `n` times their error apart on one input, about one input in `n` has nearer ones:
so many errors say as much as so many inputs on which the choice did not turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.model.families import COMPARISONS

__all__ = ["margin"]

Array = NDArray[Any]
Outputs = Mapping[str, Array]

_PIECE = 1 << 20  # numbers that are looked at together


def margin(node: ir.Node, right: Outputs, found: Outputs) -> float:
    """The least distance over its error; 0 of a choice of another kind, infinite where nothing that counts has one."""
    if node.domain or node.op_type not in COMPARISONS | {"ArgMax", "ArgMin"}:
        return 0.0
    held = [_held(value, side) for side in (right, found) for value in node.inputs]
    arrays = [array for array in held if array is not None]
    if len(arrays) < len(held):
        return 0.0
    if node.op_type in COMPARISONS:
        return min(starmap(_of_pair, _pieces(np.broadcast_arrays(*arrays))), default=np.inf)
    axis = node.attributes.get_int("axis", 0)
    last = [np.moveaxis(array if node.op_type == "ArgMax" else -array, axis, -1) for array in arrays]
    return min(starmap(_of_best, _pieces(last)), default=np.inf) if last[0].shape[-1] > 1 else np.inf


def _pieces(arrays: Sequence[Array]) -> Iterator[list[Array]]:
    """Of the same shape, whose last axis stays whole: maps of classes are large. In FP64."""
    shape = arrays[0].shape
    apart = next((n for n in range(len(shape)) if math.prod(shape[n:]) <= _PIECE), max(len(shape) - 1, 0))
    for place in np.ndindex(shape[:apart]):
        yield [np.asarray(array[place], np.float64) for array in arrays]


def _of_pair(a: Array, b: Array, a_found: Array, b_found: Array) -> float:
    return _least(a - b, _error(a, a_found) + _error(b, b_found))


def _of_best(ranked: Array, found: Array) -> float:
    """Between the best and the next, along the last axis."""
    best = np.argpartition(ranked, -2, axis=-1)[..., -2:]
    distances = np.abs(np.diff(np.take_along_axis(ranked, best, -1), axis=-1))
    return _least(distances, np.take_along_axis(_error(ranked, found), best, -1).sum(axis=-1, keepdims=True))


def _least(distances: Array, errors: Array) -> float:
    moved = np.isfinite(distances) & (errors > 0)
    return float(np.min(np.abs(distances[moved]) / errors[moved], initial=np.inf))


def _error(right: Array, found: Array) -> Array:
    """0 where a mask is clipped: it lies as far off on every input."""
    error = np.abs(right - found)
    return np.where(np.isfinite(error) & (np.abs(right) <= Format.FP16.max), error, 0.0)


def _held(value: ir.Value | None, outputs: Outputs) -> Array | None:
    """A constant, or what was looked at."""
    if value is None:
        return None
    if value.const_value is not None:
        return np.asarray(value.const_value.numpy())
    return np.asarray(outputs[value.name or ""]) if (value.name or "") in outputs else None
