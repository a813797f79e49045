"""The few that are wanted are found, in their order, by far fewer questions than there are items."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from halfwise.core.fewest import fewest


@given(st.integers(1, 200), st.sets(st.integers(0, 199), max_size=4))
def test_what_is_wanted_is_found(count: int, wanted: set[int]) -> None:
    needed, asked = {each % count for each in wanted}, list[int]()

    def enough(items: Sequence[int]) -> bool:
        asked.append(len(items))
        return needed <= set(items)

    assert set(fewest(range(count), enough, lambda: True)) == needed
    assert len(asked) <= (len(needed) + 1) * (count.bit_length() + 1)


def test_once_no_more_may_be_asked_a_beginning_is_taken() -> None:
    assert fewest(range(8), lambda items: 5 in items, lambda: False) == list(range(8))


def test_answers_that_change_end_it() -> None:
    """As of what crashes now and then: all of them are taken, once."""
    assert sorted(fewest(range(8), lambda items: False, lambda: True)) == list(range(8))


@given(st.integers(0, 12), st.sets(st.integers(0, 19), min_size=1, max_size=3))
def test_no_more_is_asked_than_may_be_and_what_is_given_is_enough(most: int, wanted: set[int]) -> None:
    asked = list[int]()

    def enough(items: Sequence[int]) -> bool:
        asked.append(len(items))
        return wanted <= set(items)

    assert wanted <= set(fewest(range(20), enough, lambda: len(asked) < most))
    assert len(asked) <= most
