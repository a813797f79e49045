"""How many samples are done: of a large model, whose weights are read once for all samples, by the parts walked."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["SamplesDone"]


class SamplesDone:
    """`notify` gets the samples done, which never become fewer, and their total."""

    def __init__(self, notify: Callable[[int, int], None]) -> None:
        self._notify = notify
        self._samples = self._walks = self._begun = self._told = 0

    def expect(self, samples: int, walks: int) -> None:
        """So many walks, if all models are large."""
        self._samples, self._walks = samples, walks

    def walked(self, done: int, total: int) -> None:
        self._begun += not done
        if self._walks:
            share = (self._begun - 1 + done / total) / self._walks
            self._tell(min(int(share * self._samples), self._samples - 1))

    def judged(self, samples: int) -> None:
        self._tell(min(samples, self._samples))

    def _tell(self, done: int) -> None:
        if done > self._told:
            self._told = done
            self._notify(done, self._samples)
