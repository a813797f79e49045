"""Numbers and small networks for the tests of rescaling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "normal", "rows"]


Array = NDArray[np.float32]


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def rows(seed: int = 9, *shape: int, scale: float = 1.0) -> list[dict[str, Array]]:
    return [{"x": normal(seed + i, *(shape or (4, 8)), scale=scale)} for i in range(3)]
