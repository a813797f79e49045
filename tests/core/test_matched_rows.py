"""Rows are matched by what they say; the oracle tries every assignment."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from halfwise.core.matched_rows import as_rows, found_share, match_rows

Array = NDArray[Any]


def best_by_trying(reference: Array, other: Array) -> float:
    """The least sum of distances over all assignments of the rows."""
    return min(
        float(sum(np.linalg.norm(reference[i] - other[j]) for i, j in enumerate(order)))
        for order in permutations(range(len(other)))
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 6))
def test_rows_that_swapped_find_each_other(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    reference = rng.uniform(-1, 1, (rows, 5))
    order = rng.permutation(rows)
    other = reference[order] + rng.normal(0, 1e-4, (rows, 5))
    at, partner = match_rows([reference], [other])
    assert len(at) == rows
    found = float(sum(np.linalg.norm(reference[i] - other[j]) for i, j in zip(at, partner, strict=True)))
    assert found == pytest.approx(best_by_trying(reference, other), rel=1e-6)


@pytest.mark.parametrize("largest", [11.0, np.inf])
def test_of_many_rows_each_finds_its_own(largest: float) -> None:
    rng = np.random.default_rng(0)
    reference = np.stack(np.meshgrid(*[np.arange(11.0)] * 3), axis=-1).reshape(-1, 3)
    reference[7, 1] = largest
    order = rng.permutation(len(reference))
    at, partner = match_rows([reference], [reference[order] + rng.uniform(-0.05, 0.05, reference.shape)])
    assert len(at) == len(reference)
    np.testing.assert_array_equal(order[partner], at)


def test_of_lists_of_places_those_in_both_are_paired() -> None:
    """Of thousands of them, which are groups of one row, beside what they hold."""
    rng = np.random.default_rng(0)
    reference, other = (np.flatnonzero(rng.random(4000) < 0.5) for _ in range(2))
    held = [np.where(places % 7, 1.0, float(side)) for side, places in enumerate((reference, other))]
    at, partner = match_rows([reference[:, None], held[0][:, None]], [other[:, None], held[1][:, None]])
    both = [place for place in np.intersect1d(reference, other) if place % 7]
    assert reference[at].tolist() == other[partner].tolist() == both


def test_what_is_no_float_must_be_equal() -> None:
    boxes = np.ones((4, 4))
    labels, others = np.array([[0], [1], [2], [2]]), np.array([[2], [1], [0], [3]])
    at, partner = match_rows([boxes, labels], [boxes, others])
    assert list(zip(at.tolist(), partner.tolist(), strict=True)) == [(0, 2), (1, 1), (2, 0)]


def test_a_row_too_far_away_is_lost_and_new() -> None:
    reference, other = np.array([[1.0, 1.0], [5.0, 5.0]]), np.array([[5.0, 5.0], [9.0, 1.0]])
    at, partner = match_rows([reference], [other])
    assert (at.tolist(), partner.tolist()) == ([1], [0])


def test_rows_of_one_input_do_not_match_those_of_another() -> None:
    reference = np.array([[[1.0], [2.0]], [[3.0], [4.0]]])
    other = np.array([[[2.0], [1.0]], [[1.0], [4.0]]])
    at, partner = match_rows([as_rows(reference, 1)], [as_rows(other, 1)], batch=2)
    assert list(zip(at.tolist(), partner.tolist(), strict=True)) == [(0, 1), (1, 0), (3, 3)]


def test_padding_and_values_that_are_not_finite() -> None:
    reference = np.array([[5.0, 1.0], [0.0, 0.0], [0.0, -np.inf], [0.0, np.nan]])
    at, partner = match_rows([reference], [reference[[2, 0, 1, 3]]])
    assert dict(zip(at.tolist(), partner.tolist(), strict=True))[0] == 1
    assert len(at) == 4


@pytest.mark.parametrize(
    ("reference", "other", "matched", "share"),
    [(100, 100, 99, 0.99), (3, 3, 2, 0.95), (0, 0, 0, 1.0), (40, 50, 40, 0.8)],
)
def test_one_row_of_a_short_list_may_change(reference: int, other: int, matched: int, share: float) -> None:
    assert found_share(reference, other, matched) == pytest.approx(share)
