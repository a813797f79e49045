"""The formats: limits against ml_dtypes, rounding and counts against plain definitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from halfwise.formats import Format, count, round_to


@pytest.mark.parametrize("fmt", list(Format))
def test_limits_are_those_of_the_type(fmt: Format) -> None:
    info = ml_dtypes.finfo(fmt.dtype)
    assert fmt.max == float(info.max)
    assert fmt.smallest_normal == float(info.smallest_normal)
    assert fmt.smallest_subnormal == float(info.smallest_subnormal)
    assert fmt.unit_roundoff == float(info.eps) / 2


@given(hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)))
def test_counts_are_what_their_definitions_say(array: np.ndarray) -> None:
    seen = count(array)
    finite = [float(x) for x in array if np.isfinite(x)]
    sizes = [abs(x) for x in finite]
    assert seen.count == len(array)
    assert seen.nonfinite == len(array) - len(finite)
    assert seen.overflow == sum(x > 65504 for x in sizes)
    assert seen.subnormal == sum(2.0**-24 <= x < 2.0**-14 for x in sizes)
    assert seen.underflow == sum(0 < x < 2.0**-24 for x in sizes)
    assert seen.max_abs == max(sizes, default=0.0)
    assert seen.min_abs == min((x for x in sizes if x), default=0.0)
    assert (seen.min, seen.max) == (min(finite, default=0.0), max(finite, default=0.0))


def test_rounding_ties_overflow_and_zeros() -> None:
    values = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.996, 65520.0, -(2.0**-25), 2.0**-25 * 1.5], np.float32)
    expected = np.array([1.0, 1 + 2.0**-9, 65504.0, np.inf, -0.0, 2.0**-24], np.float32)
    rounded = round_to(values, Format.FP16)
    np.testing.assert_array_equal(rounded, expected)
    assert np.signbit(rounded[4])
    assert np.isnan(round_to(np.array([np.nan]), Format.BF16)).all()
