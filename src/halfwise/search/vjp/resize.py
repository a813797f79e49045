"""Rules for resizing: nearest neighbours are moved values, linear interpolation is one small matrix per axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.search.vjp.local import Array, Local, NoRule, Rule
from halfwise.search.vjp.movement import traced

__all__ = ["RESIZE"]

_UNUSUAL = frozenset({"antialias", "axes", "keep_aspect_ratio_policy", "exclude_outside"})


def _resize(local: Local, slot: int) -> Array | None:
    if slot > 0:
        return None
    mode = local.text("mode", "nearest")
    if mode == "nearest":
        return traced(0)(local, slot)
    if mode != "linear" or _UNUSUAL & set(local.node.attributes):
        raise NoRule
    found: Array = local.gradient()
    for axis, (before, after) in enumerate(zip(local.input(0).shape, local.output().shape, strict=True)):
        if before != after:
            matrix = _interpolation(_coordinates(local), before, after, _scale(local, axis, after / before))
            found = np.moveaxis(np.moveaxis(found, axis + 1, -1) @ matrix, -1, axis + 1)
    return found


def _coordinates(local: Local) -> str:
    older = local.node.op_type == "Upsample" or local.opset < 11
    return "asymmetric" if older else local.text("coordinate_transformation_mode", "half_pixel")


def _scale(local: Local, axis: int, otherwise: float) -> float:
    """As given; where sizes are given instead, their ratio."""
    slot = 1 if local.node.op_type == "Upsample" or local.opset < 11 else 2
    given = local.input(slot).reshape(-1) if local.has(slot) else np.empty(0)
    return float(given[axis]) if axis < given.size else otherwise


def _interpolation(coordinates: str, before: int, after: int, scale: float) -> Array:
    """(after, before): the weight of each input in each output."""
    place = np.arange(after)
    found: NDArray[np.floating[Any]]
    if coordinates == "asymmetric":
        found = place / scale
    elif coordinates == "align_corners":
        found = place * ((before - 1) / max(after - 1, 1))
    elif coordinates == "half_pixel" or (coordinates == "pytorch_half_pixel" and after > 1):
        found = (place + 0.5) / scale - 0.5
    else:
        raise NoRule
    found = np.clip(found, 0, before - 1)
    low = np.floor(found).astype(np.int64)
    matrix = np.zeros((after, before), dtype=np.float32)
    np.add.at(matrix, (place, low), 1 - (found - low))
    np.add.at(matrix, (place, np.minimum(low + 1, before - 1)), found - low)
    return matrix


RESIZE: dict[str, Rule] = {"Resize": _resize, "Upsample": _resize}
