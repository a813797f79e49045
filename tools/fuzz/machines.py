"""A machine file to be damaged: a few of the forms that come with halfwise, and times that nobody measured."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import structs

from halfwise.emulation.profiles.machine import signed
from halfwise.emulation.profiles.shipped import shipped_machine
from halfwise.emulation.timing.grid import GRID
from halfwise.emulation.timing.record import Precision, TimeRecord, TimesRecord

__all__ = ["machine"]

_EACH_FORM, _EACH_OPERATION = 9, 11  # so few that a change of one is seen
_TIMES: dict[Precision, float] = {"fp16": 2.0, "fp32": 5.0}


@cache
def machine() -> Any:
    """As JSON."""
    shipped = shipped_machine()
    rows = [
        TimeRecord(operation, kind, microseconds)
        for operation in GRID[::_EACH_OPERATION]
        for kind, microseconds in _TIMES.items()
    ]
    times = TimesRecord("a clock", 1.0, tuple(rows))
    return signed(structs.replace(shipped, forms=tuple(shipped.forms[::_EACH_FORM]), times=times)).to_json()
