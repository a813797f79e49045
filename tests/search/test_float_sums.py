"""No decision hangs on how `sum` rounds floats: from Python 3.12 on it does otherwise, and sets come in any order."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import halfwise
from halfwise import fix
from tests.models.random_nets import feeds, random_net

HERE = Path(halfwise.__file__).parent
DECIDE = ("model", "precision", "emulation", "repair", "search")
SEED = 17  # a net that needs nodes in FP32


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Where floats are summed by it."""
    seen = set[str]()
    real: Callable[..., Any] = sum

    def watched(values: Iterable[Any], start: Any = 0) -> Any:
        found, frame = real(values, start), sys._getframe(1)
        path = Path(frame.f_code.co_filename)
        if type(found) is float and any(path.is_relative_to(HERE / room) for room in DECIDE):
            seen.add(f"{path.relative_to(HERE)}:{frame.f_lineno}")
        return found

    monkeypatch.setattr(builtins, "sum", watched)
    return seen


@pytest.mark.parametrize("repairs", ["none", "all"])
def test_a_search_sums_floats_exactly(summed: set[str], repairs: str) -> None:
    given = [*feeds(SEED), *feeds(SEED + 1)]
    fix(random_net(SEED), given, tolerance="*:rel_l2<=0.003", repairs=repairs)
    assert summed == set()


def test_a_search_by_predicted_time_sums_floats_exactly(summed: set[str]) -> None:
    fix(random_net(SEED), feeds(SEED), target="trt-10.9@t4", cost="roofline")
    assert summed == set()
