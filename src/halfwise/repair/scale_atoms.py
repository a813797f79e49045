"""Powers of two that tensors may carry: one unknown a channel, and which unknowns have to be equal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["PINNED", "TYPICAL", "Atoms", "Floats", "Ints", "Layout", "Weights", "blocks"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PINNED = 0  # the unknown that is known: no scaling
TYPICAL = 0.05  # of an activation's largest magnitude


@dataclass(frozen=True)
class Layout:
    """Which unknown scales which part of a tensor: one a channel along `axis`, or a single one where that is None.

    `cap` says how large a magnitude can be there at most, whatever the input, as far as that is known.
    """

    axis: int | None
    atoms: Ints
    cap: Floats

    @property
    def first(self) -> Ints:
        return self.atoms[:1]


@dataclass(frozen=True, eq=False)
class Weights:
    """A constant that a rewrite may scale: by 2^(row - column), the unknowns of what it makes and of what it reads.

    `square` and `peak` hold the mean square and the largest magnitude of each block; `row_shape` and `column_shape`
    spread the unknowns over the tensor. A `soft` one has only to stay in range: it is no factor.
    """

    node: ir.Node
    slot: int
    rows: Ints
    row_shape: tuple[int, ...]
    square: Floats
    peak: Floats
    columns: Ints | None = None
    column_shape: tuple[int, ...] = ()
    soft: bool = False
    output: ir.Value | None = None  # what may be scaled back right behind the node, and along which axis
    axis: int | None = None
    front: bool = False  # no constant yet: what the node reads, which a new factor in front of it scales


@dataclass
class Atoms:
    """Makes unknowns and ties them; `labels` are the classes of equal ones, 0 the class of the pinned."""

    count: int = 1
    _left: list[Ints] = field(default_factory=list)
    _right: list[Ints] = field(default_factory=list)

    def fresh(self, number: int) -> Ints:
        self.count += number
        return np.arange(self.count - number, self.count, dtype=np.int64)

    def tie(self, one: Ints, other: Ints) -> None:
        left, right = np.broadcast_arrays(one, other)
        self._left.append(left.reshape(-1))
        self._right.append(right.reshape(-1))

    def pin(self, atoms: Ints) -> None:
        self.tie(atoms, np.zeros(1, np.int64))

    def labels(self) -> Ints:
        """Connected components: every unknown takes the smallest number within reach."""
        label = np.arange(self.count, dtype=np.int64)
        if not self._left:
            return label
        left, right = np.concatenate(self._left), np.concatenate(self._right)
        while True:
            low = np.minimum(label[left], label[right])
            before = label.copy()
            for side in (left, right):
                np.minimum.at(label, label[side], low)
                np.minimum.at(label, side, low)
            while not np.array_equal(label, label[label]):
                label = label[label]
            if np.array_equal(label, before):
                return label


def blocks(array: NDArray[Any], keep: tuple[int, ...]) -> tuple[Floats, Floats, Floats]:
    """Over all axes but those kept: mean square, largest magnitude, and sum of magnitudes."""
    sizes = np.abs(array.astype(np.float64))
    over = tuple(axis for axis in range(array.ndim) if axis not in keep)
    if not array.size:
        shape = tuple(array.shape[axis] for axis in keep)
        return np.zeros(shape), np.zeros(shape), np.zeros(shape)
    return (sizes**2).mean(axis=over), sizes.max(axis=over), sizes.sum(axis=over)
