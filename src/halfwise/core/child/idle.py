"""Whether a child waits for ever: a native library whose thread could not start, or got no memory, waits for it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Idle"]

_STATE, _TIMES = 0, slice(11, 13)  # fields behind the name: the state, and ticks in the program and in the system
_SLEEPS = "S"  # what waits for a disk, or was stopped by somebody, is not asleep


@dataclass(frozen=True)
class Idle:
    """Since when all threads of a process have slept, with nothing computed; where the system tells no times, never."""

    process: int
    seen: tuple[int, int] | None  # its threads and what they have computed; None where one does not sleep
    since: float

    @classmethod
    def now(cls, process: int) -> Idle:
        return cls(process, _look(process), time.monotonic())

    def still(self) -> Idle:
        """The same where nothing was computed meanwhile, else as of now."""
        now = Idle.now(self.process)
        return self if now.seen is not None and now.seen == self.seen else now

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


def _look(process: int) -> tuple[int, int] | None:
    threads = ticks = 0
    with suppress(OSError, ValueError, IndexError):
        for task in Path(f"/proc/{process}/task").iterdir():
            fields = (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if fields[_STATE] != _SLEEPS:
                return None
            threads += 1
            ticks += sum(map(int, fields[_TIMES]))
        return threads, ticks
    return None
