"""GroupQueryAttention whose cache holds the last rows alone."""

from __future__ import annotations

import numpy as np

from tests.models.contrib_cases import Array, Case, N

__all__ = ["sliding"]


def sliding(before: int, rows: int, room: int, window: int) -> Case:
    """So many rows behind those before them, with a cache that holds the last ones."""
    wide, size = 16 * N, 16
    new = (_floats(1, rows, width) for width in (wide, 2 * size, 2 * size))
    cache = (_floats(1, 2, room, size) for _ in range(2))
    lengths = (np.array([before + rows - 1], np.int32), np.array(before + rows, np.int32))
    attributes = {"num_heads": N, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": window}
    inputs = (*new, *cache, *lengths, _floats(32, size // 2), _floats(32, size // 2, scale=0.7))
    return Case("sliding", "GroupQueryAttention", inputs, {**attributes, "sliding_window_cache": 1}, ("y", "k", "v"))


def _floats(*shape: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng(shape).standard_normal(shape) * scale).astype(np.float32)
