"""Counts what a job runs, in model executions."""

from __future__ import annotations

__all__ = ["RunCounter"]


class RunCounter:
    """Passed to whatever runs a model. One sample through the whole model counts 1, through half of its nodes 0.5."""

    def __init__(self) -> None:
        self.samples = 0.0

    def add(self, samples: float) -> None:
        self.samples += samples

    def passes(self, samples: int) -> float:
        """The same in passes over so many samples."""
        return self.samples / max(samples, 1)
