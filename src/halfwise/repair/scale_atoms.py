"""Powers of two that tensors may carry: one unknown a channel, and which unknowns have to be equal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.repair.scale_blocks import LargeBlocks

__all__ = ["PINNED", "TYPICAL", "Atoms", "Bools", "Floats", "Follow", "Heard", "Ints", "Products", "Tie", "Weights"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

Tie = tuple[Ints, Ints, Floats]  # one, other, ratio

PINNED = 0  # the unknown that is known: no scaling
TYPICAL = 0.05  # of an activation's largest magnitude


class Heard(NamedTuple):
    """Of a factor, with inputs as large as can be: the square of what each row makes of them, as if they were
    independent; and the square of what each column reads."""

    made: Floats
    read: Floats


@dataclass(frozen=True, eq=False)
class Weights:
    """A constant that a rewrite may scale: by 2^(row - column), the unknowns of what it makes and of what it reads.

    `square` and `peak` hold the mean square and the largest magnitude of each block, or `large` reads them when asked;
    `row_shape` and `column_shape` spread the unknowns over the tensor. A `soft` one has only to stay in range: it is no
    factor.
    """

    node: ir.Node | None  # of a factor behind a graph input none
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
    front: bool = False  # no constant yet: `read`, which a new factor in front of the node scales
    read: ir.Value | None = None
    large: LargeBlocks | None = None
    heard: Heard | None = None  # where the inputs are known, and each row reads them all


@dataclass(frozen=True)
class Products:
    """made = left + sign * right, element by element."""

    made: Ints
    left: Ints
    right: Ints
    sign: Floats


@dataclass(frozen=True)
class Follow:
    """A root: what it makes would carry `ratio` times the power that it reads, or has it taken back."""

    made: Ints
    read: Ints
    ratio: float


@dataclass
class Atoms:
    """Makes unknowns, and notes what has to hold between them."""

    count: int = 1
    follows: list[Follow] = field(default_factory=list)
    _ties: list[Tie] = field(default_factory=list)
    _products: list[tuple[Ints, Ints, Ints, Floats]] = field(default_factory=list)
    _stands: list[Tie] = field(default_factory=list)
    _loud: list[Ints] = field(default_factory=list)

    def fresh(self, number: int) -> Ints:
        self.count += number
        return np.arange(self.count - number, self.count, dtype=np.int64)

    def inverse(self, atoms: Ints) -> Ints:
        made = self.fresh(len(atoms))
        self.tie(made, atoms, -1.0)
        return made

    def tie(self, one: Ints, other: Ints, ratio: float = 1.0) -> None:
        """one = ratio * other."""
        self._ties.append((one, other, np.full(1, ratio)))

    def pin(self, atoms: Ints) -> None:
        self.tie(atoms, np.full(1, PINNED))

    def product(self, made: Ints, left: Ints, right: Ints, sign: float) -> None:
        """made = left + sign * right. Where nothing else decides, `right` is pinned."""
        self._products.append((made, left, right, np.full(1, sign)))

    def follow(self, made: Ints, read: Ints, ratio: float) -> None:
        self.follows.append(Follow(made, read, ratio))

    def stand(self, made: Ints, read: Ints, ratio: float) -> None:
        """made = ratio * read as long as the constant between them stays as it is."""
        self._stands.append((made, read, np.full(1, ratio)))

    def stands(self) -> tuple[Ints, Floats]:
        """Of each unknown what stands behind it, and the ratio; PINNED where nothing does."""
        read, ratios = np.full(self.count, PINNED), np.ones(self.count)
        for made, source, ratio in self._stands:
            read[made], ratios[made] = source, ratio
        return read, ratios

    def free_loud(self, atoms: Ints) -> None:
        """They scale what FP16 has no room for: no guess pins them."""
        self._loud.append(atoms)

    def loud(self) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *self._loud])

    def ties(self) -> list[Tie]:
        return self._ties

    def products(self) -> Products:
        spread = [np.broadcast_arrays(*each) for each in self._products]
        parts = [[each[i].reshape(-1) for each in spread] for i in range(4)]
        made, left, right = (np.concatenate([np.zeros(0, np.int64), *part]) for part in parts[:3])
        return Products(made, left, right, np.concatenate([np.zeros(0), *parts[3]]))
