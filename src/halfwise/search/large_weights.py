"""The way back through large weights, of which no gradient is made: it would be several times their size."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.search.vjp import Local

__all__ = ["is_large_constant", "same_values", "taken_rows"]

Array = NDArray[Any]

LARGE = 1 << 22  # elements
_PIECE = 1 << 16  # elements that are compared at once: most weights differ in the first


def is_large_constant(value: ir.Value, array: Array | None) -> bool:
    """Whether it is a weight that a node only moved or reshaped, and large."""
    maker = value.producer()
    constant = maker is not None and all(each is None or each.is_initializer() for each in maker.inputs)
    return constant and array is not None and array.size >= LARGE


def same_values(one: Array, other: Array) -> bool:
    rows = max(1, _PIECE * len(one) // max(one.size, 1))  # of a transposed weight, too, without a copy
    return all(np.array_equal(one[row : row + rows], other[row : row + rows]) for row in range(0, len(one), rows))


def taken_rows(local: Local, gradient: Array) -> tuple[Array, Array]:
    """Of a Gather: the rows of its table that it takes, and their gradient. All others have none."""
    table, taken = local.input(0), local.input(1)
    axis = local.integer("axis", 0) % table.ndim
    rows, places = np.unique(taken.reshape(-1) % table.shape[axis], return_inverse=True)
    part = np.take(table, rows, axis)
    flat = gradient.reshape(*gradient.shape[: axis + 1], taken.size, *table.shape[axis + 1 :])
    summed = np.zeros((len(gradient), *part.shape), np.float32)
    np.add.at(np.moveaxis(summed, axis + 1, 0), places, np.moveaxis(flat, axis + 1, 0))
    return part, summed
