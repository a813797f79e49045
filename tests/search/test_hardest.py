"""The held-out input that plain FP16 misses by most is searched at once; an input that was searched judges never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.samples import Samples
from halfwise.search.hardest import with_hardest

GIVEN = Samples((Feed(0, {}), Feed(1, {})), (Feed(2, {}), Feed(3, {})), "given")


def numbers(feeds: tuple[Feed, ...]) -> list[int]:
    return [feed.id for feed in feeds]


@pytest.mark.parametrize(
    ("ratios", "searched", "held_out"),
    [
        ((0.3, 1.1, 0.6, 1.4), [3, 1], [2, 0]),
        ((1.1, 0.3, 1.3, 1.4), [0, 3], [2, 1]),  # one only: others are to be found out by the held-out inputs
        ((0.3, 1.1, 0.6, float("inf")), [3, 1], [2, 0]),
        ((0.3, 0.4, 0.6, 0.9), [0, 1], [2, 3]),  # within the tolerance
        ((0.3, 1.5, 0.6, 1.4), [0, 1], [2, 3]),  # a worse one is searched
        ((0.3, float("inf"), 0.6, float("inf")), [0, 1], [2, 3]),
    ],
)
def test_the_hardest_is_searched_in_place_of_the_easiest(
    ratios: tuple[float, ...], searched: list[int], held_out: list[int]
) -> None:
    found = with_hardest(GIVEN, ratios)
    assert (numbers(found.search), numbers(found.validation)) == (searched, held_out)


def test_what_was_made_up_stays_where_it_is() -> None:
    made = replace(GIVEN, origin="derived")
    assert with_hardest(made, (0.1, 0.1, 0.1, 2.0)) is made
