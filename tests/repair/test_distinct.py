"""Distinct numbers are what numpy says they are."""

from __future__ import annotations

import numpy as np
import pytest

from halfwise.repair.distinct import distinct, numbered

RNG = np.random.default_rng(0)
ARRAYS = [
    np.zeros(0, np.int64),
    np.array([7]),
    RNG.integers(-5, 5, 40),
    RNG.integers(0, 3, (4, 5)),
    np.round(RNG.standard_normal(50), 1),
    np.broadcast_to(np.array([2.5]), (6,)),
]


@pytest.mark.parametrize("values", ARRAYS, ids=lambda values: f"{values.dtype}{values.shape}")
def test_as_numpy_says(values: np.ndarray) -> None:
    keys, places = np.unique(values, return_inverse=True)
    assert np.array_equal(distinct(values), keys)
    found, numbers = numbered(values)
    assert np.array_equal(found, keys) and np.array_equal(numbers, places.reshape(-1))
    assert np.array_equal(found[numbers], values.reshape(-1))
