"""Tells at which stage it is, and how long the rest takes, if each stage takes as long as those before."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from halfwise.core.told import Stand, TimeLeft, Told

__all__ = ["StageTeller"]


@dataclass(frozen=True)
class StageTeller:
    notify: Callable[[str], None]
    stages: int
    since: float
    clock: Callable[[], float] = time.monotonic

    def of(self, index: int, name: str) -> Callable[[str], None]:
        """A stage begins: to call with what is done in it."""
        now = self.clock()
        passed = now - self.since
        left = TimeLeft(passed / index * (self.stages - index), now) if index and passed >= 1 else None
        step = f"stage {index + 1} of {self.stages}: {name}"

        def tell(part: str) -> None:
            stand = Stand(step, part, left=left)
            self.notify(Told(stand.text(self.clock()), stand))

        tell("")
        return tell
