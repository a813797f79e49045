"""Whether a child waits for ever: a native library whose thread could not start, or got no memory, waits for it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

__all__ = ["Idleness"]

_STATE, _TIMES = 0, slice(11, 13)  # fields behind the name: the state, and ticks in the program and in the system
_SLEEPS = "S"  # what waits for a disk, or was stopped by somebody, is not asleep


class Idleness:
    """Of a process that has something to compute. Where the system tells no times, it is never idle."""

    def __init__(self, process: int, limit_s: float) -> None:
        self._tasks = Path(f"/proc/{process}/task")
        self._limit_s = limit_s
        self._seen: tuple[int, int] | None = None
        self._since = time.monotonic()

    def over(self) -> bool:
        """Whether all of its threads have slept since it was asked, for so long."""
        seen = self._look()
        if seen is None or seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since >= self._limit_s

    def _look(self) -> tuple[int, int] | None:
        """Its threads and what they have computed; None where one does not sleep."""
        threads = ticks = 0
        with suppress(OSError, ValueError, IndexError):
            for task in self._tasks.iterdir():
                fields = (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                if fields[_STATE] != _SLEEPS:
                    return None
                threads += 1
                ticks += sum(map(int, fields[_TIMES]))
            return threads, ticks
        return None
