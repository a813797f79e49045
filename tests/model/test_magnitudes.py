"""Between which magnitudes a weight's elements lie, beside NumPy's own arithmetic."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.model.magnitudes import magnitudes

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)


@given(st.lists(FLOATS, max_size=40))
def test_they_are_the_least_but_zero_and_the_largest(values: list[float]) -> None:
    sizes = [abs(each) for each in values]
    found = magnitudes(ir.tensor(np.array(values, np.float32)))
    assert found == (min((each for each in sizes if each), default=math.inf), max(sizes, default=0.0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_the_largest(bad: float) -> None:
    assert magnitudes(ir.tensor(np.array([2.0, bad, -0.5], np.float32))) == (0.5, math.inf)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_they_are_of_the_values_as_fp32_holds_them(dtype: type) -> None:
    stored: np.ndarray[Any, Any] = np.array([[0.25, -3.0], [0.0, 2.0**-20]], dtype)
    assert magnitudes(ir.tensor(stored)) == (2.0**-20, 3.0)


def test_each_part_of_a_large_weight_is_seen() -> None:
    array = np.full((3, 1 << 18), 1.5, np.float32)
    for place, value in ((7, -1e-30), ((1 << 18) * 3 - 1, 1e30), (1 << 17, 0.0)):
        array.reshape(-1)[place] = value
    assert magnitudes(ir.tensor(array)) == pytest.approx((1e-30, 1e30))
