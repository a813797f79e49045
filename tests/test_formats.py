"""The formats: limits against ml_dtypes, rounding against plain definitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from halfwise.formats import Format, round_to


@pytest.mark.parametrize("fmt", list(Format))
def test_limits_are_those_of_the_type(fmt: Format) -> None:
    info = ml_dtypes.finfo(fmt.dtype)
    assert fmt.max == float(info.max)
    assert fmt.smallest_normal == float(info.smallest_normal)
    assert fmt.smallest_subnormal == float(info.smallest_subnormal)
    assert fmt.unit_roundoff == float(info.eps) / 2


def test_rounding_ties_overflow_and_zeros() -> None:
    values = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.996, 65520.0, -(2.0**-25), 2.0**-25 * 1.5], np.float32)
    expected = np.array([1.0, 1 + 2.0**-9, 65504.0, np.inf, -0.0, 2.0**-24], np.float32)
    rounded = round_to(values, Format.FP16)
    np.testing.assert_array_equal(rounded, expected)
    assert np.signbit(rounded[4])
    assert np.isnan(round_to(np.array([np.nan]), Format.BF16)).all()
