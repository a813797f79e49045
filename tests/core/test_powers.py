"""How values spread over the powers of two, against logarithms."""

from __future__ import annotations

import numpy as np

from halfwise.core.powers import LOOKED_AT, powers


def test_every_value_of_a_small_tensor_counts() -> None:
    values = np.array([0.0, -0.0, 1.0, -1.5, 2.0, 3e-8, -7e4, np.inf, -np.inf, np.nan], np.float32)
    finite = np.abs(values[np.isfinite(values) & (values != 0)]).astype(np.float64)
    exponents = np.floor(np.log2(finite)).astype(int)
    assert powers(values) == {int(e): int(np.sum(exponents == e)) for e in exponents}
    assert powers(np.zeros((0, 3), np.float32)) == {}


def test_a_large_tensor_is_looked_at_in_every_channel() -> None:
    """Two channels of very different size side by side, which an even stride would tell apart."""
    values = np.stack([np.full(8 * LOOKED_AT, 1e-3), np.full(8 * LOOKED_AT, 1e3)], axis=1).astype(np.float32)
    found = powers(values)
    assert set(found) == {-10, 9} and sum(found.values()) <= LOOKED_AT
    assert 0.9 < found[-10] / found[9] < 1.1
