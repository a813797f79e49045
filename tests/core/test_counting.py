"""The counts against plain definitions, over everything that a chunk can hold."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from halfwise.core.counting import BLOCK, Counter, count, worst_counts
from halfwise.core.formats import Format


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


SOME = [float(np.float32(value)) for value in (0.0, 1e-9, 1e-5, -0.5, 7e4)]


@given(*[hnp.arrays(np.float32, st.integers(0, 9), elements=st.sampled_from(SOME))] * 2)
def test_the_worst_of_two_has_the_extremes_of_both(one: np.ndarray, other: np.ndarray) -> None:
    worst, both = worst_counts(count(one), count(other)), count(np.concatenate([one, other]))
    extremes = ("min", "max", "max_abs", "min_abs")
    assert [getattr(worst, name) for name in extremes] == [getattr(both, name) for name in extremes]
    assert (worst.count, worst.overflow) == (max(one.size, other.size), max(count(one).overflow, count(other).overflow))


_SIZE = 5 * BLOCK + 4099  # for both types some chunks, a shorter one of whole lines, and what is left of a line
SPECIAL = [0.0, -0.0, 1e-9, -3e-8, 1e-5, -2e-5, 0.01, -0.5, 3.0, 7e4, -1e30, np.inf, -np.inf, np.nan]


@given(
    st.lists(st.tuples(st.integers(0, _SIZE - 1), st.sampled_from(SPECIAL)), max_size=8),
    st.sampled_from([0.0, 1e-9, 1e-5, -0.25, 1e5]),
    st.sampled_from([np.float32, np.float64]),
)
def test_counts_over_several_chunks(odd: list[tuple[int, float]], usual: float, kind: type) -> None:
    array = np.full(_SIZE, usual, kind)
    for place, value in odd:
        array[place] = value
    seen, sizes = count(array), np.abs(array[np.isfinite(array)])
    assert seen.nonfinite == array.size - sizes.size
    assert seen.overflow == (sizes > 65504).sum()
    assert seen.subnormal == ((sizes >= 2.0**-24) & (sizes < 2.0**-14)).sum()
    assert seen.underflow == ((sizes > 0) & (sizes < 2.0**-24)).sum()
    assert seen.min_abs == sizes[sizes > 0].min(initial=np.inf) or (seen.min_abs == 0 and not sizes.any())
    assert (seen.min, seen.max) == (array[np.isfinite(array)].min(), array[np.isfinite(array)].max())


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_every_pattern_of_a_type_is_counted_once(kind: type) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16).view(kind if kind is not np.float32 else ml_dtypes.bfloat16)
    every = np.concatenate([patterns[::-1], patterns] * 5).astype(kind)  # more than a chunk
    with np.errstate(invalid="ignore"):
        seen, values = count(every), every.astype(np.float64)
    sizes = np.abs(values[np.isfinite(values)])
    assert (seen.count, seen.nonfinite) == (every.size, every.size - sizes.size)
    assert seen.overflow == (sizes > 65504).sum()
    assert seen.subnormal == ((sizes >= 2.0**-24) & (sizes < 2.0**-14)).sum()
    assert seen.underflow == ((sizes > 0) & (sizes < 2.0**-24)).sum()
    assert (seen.max_abs, seen.min_abs) == (sizes.max(), sizes[sizes > 0].min())


@pytest.mark.parametrize("start", [0, 3 * BLOCK, 7 * BLOCK - 200])
def test_a_channel_of_tiny_values_is_seen_by_how_close_they_stand(start: int) -> None:
    """Of as many tiny values here and there no block holds many."""
    array = np.full(8 * BLOCK + 77, 0.5, np.float32)
    array[:: array.size // 500] = 1e-6
    assert count(array).densest < 80
    array[start : start + 500] = 1e-6
    assert count(array).densest > 300


def test_parts_of_an_array_count_like_the_whole() -> None:
    rng = np.random.default_rng(5)
    array = (rng.standard_normal(6 * BLOCK) * np.exp(rng.normal(0, 9, 6 * BLOCK))).astype(np.float32)
    parts = Counter(array.dtype, Format.FP16)
    for start in range(0, array.size, 70_001):
        parts.add(array[start : start + 70_001])
    assert parts.counts() == count(array)
