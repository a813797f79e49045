"""Numbers as tables show them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halfwise.core.wording import three_digits


@given(st.floats())
def test_a_number_in_a_table_has_the_sign_of_its_value(value: float) -> None:
    assert three_digits(value).startswith("-") == (value < 0.0)
