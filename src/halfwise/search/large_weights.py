"""The way back through large weights, of which no gradient is made: it would be several times their size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.search.vjp import Local

__all__ = ["channels", "is_large_constant", "same_values", "taken_rows", "wants_gradient"]

Array = NDArray[Any]

LARGE = 1 << 22  # elements

# Where a product's weight has its outputs: roundings of different channels are independent.
_CHANNELS = {"Conv": 1, "ConvTranspose": 1, "MatMul": -1, "Gemm": -1}

_PIECE = 1 << 16  # elements that are compared at once: most weights differ in the first


def is_large_constant(value: ir.Value, array: Array | None) -> bool:
    """Whether it is a weight that a node only moved or reshaped, and large."""
    maker = value.producer()
    constant = maker is not None and all(each is None or each.is_initializer() for each in maker.inputs)
    return constant and array is not None and array.size >= LARGE


def channels(node: ir.Node, slots: Sequence[int]) -> int | None:
    """The axis of the outputs' channels, where a node multiplies by what it takes there as by a weight."""
    return _CHANNELS.get(node.op_type) if not node.domain and list(slots) == [1] else None


def wants_gradient(value: ir.Value, array: Array) -> bool:
    """Whether a gradient of a tensor may be made on the way back; not of a large weight that is only moved."""
    uses = [channels(use.node, [use.idx]) for use in value.uses()]
    return None in uses or not is_large_constant(value, array)


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
