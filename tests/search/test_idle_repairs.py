"""Repairs that are not missed are left out, place by place only while runs are left for a search anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from halfwise.precision.choices import NO_CHOICES
from halfwise.repair import Repair
from halfwise.repair.rescale import RESCALE
from halfwise.search.idle_repairs import IdleRepairs

PLAIN: Any = SimpleNamespace(solution=SimpleNamespace(keep=()), model=None)
PLACES: Any = SimpleNamespace(repairs=tuple((RESCALE, Repair("HW401", (name,), "", {})) for name in "abc"))


@pytest.mark.parametrize(("anew", "asked"), [(False, 1), (True, 6)])  # the rule; all of it, its halves, each place
def test_a_search_anew_comes_before_places(anew: bool, asked: int) -> None:
    seen = list[Any]()

    def affords(current: Any) -> bool:
        seen.append(current)
        return False

    context: Any = None
    idle = IdleRepairs(PLAIN, context, (), NO_CHOICES, lambda *_: None, affords, lambda _: anew, lambda _: None)
    assert idle.left_out(PLACES) is PLACES
    assert len(seen) == asked
