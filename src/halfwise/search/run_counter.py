"""Counts what a job runs, in model executions, and knows how many it may."""

from __future__ import annotations

import math

__all__ = ["RunCounter"]


KEPT_BACK = 6  # passes for the verdict


class RunCounter:
    """Passed to whatever runs a model. One sample through the whole model counts 1, through half of its nodes 0.5."""

    def __init__(self, most_passes: float = math.inf) -> None:
        self.samples = 0.0
        self.most_passes = most_passes  # over the samples searched; what keeps the tolerance is looked for beyond it

    def add(self, samples: float) -> None:
        self.samples += samples

    def most(self, samples: int) -> float:
        """The model executions that may be spent, where a pass is over so many samples."""
        return max(self.most_passes - KEPT_BACK, 0.0) * samples

    def spent(self, samples: int) -> bool:
        return self.samples >= self.most(samples)

    def passes(self, samples: int) -> float:
        """The same in passes over so many samples."""
        return self.samples / max(samples, 1)
