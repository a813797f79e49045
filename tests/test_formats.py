"""The formats: limits against ml_dtypes, rounding and counts against plain definitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from halfwise.formats import BLOCK, Format, count, round_to


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


SPECIAL = [0.0, -0.0, 1e-9, -3e-8, 1e-5, -2e-5, 0.01, -0.5, 3.0, 7e4, -1e30, np.inf, -np.inf, np.nan]


@given(
    st.lists(st.tuples(st.integers(0, 3 * BLOCK - 1), st.sampled_from(SPECIAL)), max_size=8),
    st.sampled_from([0.0, 1e-9, 1e-5, -0.25, 1e5]),
    st.sampled_from([np.float32, np.float64]),
)
def test_counts_over_several_blocks(odd: list[tuple[int, float]], usual: float, kind: type) -> None:
    array = np.full(3 * BLOCK - 7, usual, kind)
    for place, value in odd:
        array[place % array.size] = value
    seen, sizes = count(array), np.abs(array[np.isfinite(array)])
    assert seen.nonfinite == array.size - sizes.size
    assert seen.overflow == (sizes > 65504).sum()
    assert seen.subnormal == ((sizes >= 2.0**-24) & (sizes < 2.0**-14)).sum()
    assert seen.underflow == ((sizes > 0) & (sizes < 2.0**-24)).sum()
    assert seen.min_abs == sizes[sizes > 0].min(initial=np.inf) or (seen.min_abs == 0 and not sizes.any())
    assert (seen.min, seen.max) == (array[np.isfinite(array)].min(), array[np.isfinite(array)].max())


def test_rounding_ties_overflow_and_zeros() -> None:
    values = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.996, 65520.0, -(2.0**-25), 2.0**-25 * 1.5], np.float32)
    expected = np.array([1.0, 1 + 2.0**-9, 65504.0, np.inf, -0.0, 2.0**-24], np.float32)
    rounded = round_to(values, Format.FP16)
    np.testing.assert_array_equal(rounded, expected)
    assert np.signbit(rounded[4])
    assert np.isnan(round_to(np.array([np.nan]), Format.BF16)).all()
