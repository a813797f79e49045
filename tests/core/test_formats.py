"""The formats: limits against ml_dtypes, rounding against plain definitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.core.fast_casts import rounded
from halfwise.core.formats import FORMATS, Format, round_to


@pytest.mark.parametrize("fmt", list(FORMATS.values()))
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


def as_numpy_rounds(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float32)


def test_fp16_is_what_numpy_converts_to() -> None:
    """Every value that FP16 has, every midpoint of two, and their neighbours in FP32; the sign of zero, too."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[1:].astype(np.float64) + halves[:-1]).astype(np.float32) / 2
    beyond = np.array([65519.996, 65520.0, 65536.0, 1e30, 3.4e38, np.inf, 1e-45, 1e-38], np.float32)
    values = np.concatenate([halves, middles, beyond])
    values = np.concatenate([values, np.nextafter(values, np.float32(0)), np.nextafter(values, np.float32(np.inf))])
    for sign in (1, -1):
        rounded = round_to(sign * values, Format.FP16)
        np.testing.assert_array_equal(rounded.view(np.uint32), as_numpy_rounds(sign * values).view(np.uint32))
    assert np.isnan(round_to(np.full(1_000, np.nan), Format.FP16)).all()


SHAPES = [(0,), (), (256,), (257,), (3, 100), (2, 33_000)]


@given(st.sampled_from(SHAPES), st.integers(0, 2**32 - 1), st.booleans())
def test_fp16_of_any_bits_in_any_layout(shape: tuple[int, ...], seed: int, turned: bool) -> None:
    bits = np.random.default_rng(seed).integers(0, 2**32, shape, np.uint32)
    values = np.nan_to_num(np.asarray(bits, np.uint32).view(np.float32), nan=1.0, posinf=np.inf, neginf=-np.inf)
    values = values.T if turned else values
    before = values.copy()
    rounded = round_to(values, Format.FP16)
    assert rounded.shape == values.shape and rounded.dtype == np.float32
    np.testing.assert_array_equal(rounded.view(np.uint32), as_numpy_rounds(values).view(np.uint32))
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 2), (70_000, 2)])
@pytest.mark.parametrize("fmt", [Format.FP16, Format.BF16])
def test_a_rounded_array_keeps_its_shape_and_its_order(shape: tuple[int, ...], fmt: Format) -> None:
    values = np.asarray(np.random.default_rng(3).random(shape, dtype=np.float32))
    for array in (values, values.T):
        got = rounded(array, fmt)
        assert got.shape == array.shape
        np.testing.assert_array_equal(got, round_to(array, fmt))
