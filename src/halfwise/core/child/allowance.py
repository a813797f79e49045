"""What a user lets a command or a call take, as the environment says."""

from __future__ import annotations

import os
from dataclasses import dataclass

from halfwise.core.errors import InputError

__all__ = ["MEMORY", "TIME", "Allowance"]

MEMORY, TIME = "HALFWISE_MEMORY_LIMIT", "HALFWISE_TIME_LIMIT"
_LEAST_MEMORY = 1 << 30  # with less the libraries end the process while they load
_MOST_SECONDS = 2_000_000.0  # 23 days: the timers of systems take little more
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Allowance:
    """Bytes for each process, and seconds. 0: no limit."""

    memory: int = 0
    seconds: float = 0.0

    @classmethod
    def of_environment(cls) -> Allowance:
        memory, seconds = os.environ.get(MEMORY, ""), os.environ.get(TIME, "")
        try:
            unit = _UNITS.get(memory[-1:].upper(), 1)
            size = int(float(memory.rstrip("kKmMgG")) * unit) if memory else 0
            allowed = cls(size, min(float(seconds), _MOST_SECONDS) if seconds else 0.0)
            if (memory and size < _LEAST_MEMORY) or not allowed.seconds >= 0:
                raise ValueError
        except (ValueError, OverflowError):
            raise InputError(
                f"{MEMORY} is a size such as 8G, at least 1G, {TIME} a number of seconds; "
                f"not {memory[:40]!r} and {seconds[:40]!r}"
            ) from None
        return allowed
