"""A trial perturbation, for operators without a rule: it takes a few times the tensor, also of a large weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.search.rounding import Rounding, finite

__all__ = ["Signs", "noise_like", "strength"]

Array = NDArray[Any]

_BLOCK = 1 << 16  # elements at a time


@dataclass(frozen=True)
class Signs:
    """A gradient that is of one size everywhere, and of random signs."""

    signs: NDArray[np.int8]  # per probe
    size: np.float32

    def whole(self) -> Array:
        return np.asarray(self.signs * self.size, dtype=np.float32)

    def energy(self, rounding: Rounding) -> float:
        """The squared error that a rounding leaves, as of the whole gradient, which is not made."""
        if not np.isfinite(self.size):
            return 0.0
        return Rounding(rounding.error * self.size, rounding.groups).energy(self.signs)


def noise_like(array: Array, unit: float, rng: np.random.Generator) -> Array:
    """As large as roundings of the array are."""
    noise = np.empty(array.shape, np.float32)
    taken, made = array.reshape(-1), noise.reshape(-1)
    for start in range(0, made.size, _BLOCK):
        part = taken[start : start + _BLOCK]
        made[start : start + _BLOCK] = part * (unit * rng.uniform(-1, 1, part.size))
    return finite(noise)


def strength(noise: Array) -> float:
    """The sum of its squares in FP64, added up as NumPy adds the whole."""
    flat = noise.reshape(-1)
    if flat.size <= _BLOCK:
        return float(np.sum(np.square(flat, dtype=np.float64)))
    half = flat.size // 2 // 8 * 8
    return strength(flat[:half]) + strength(flat[half:])
