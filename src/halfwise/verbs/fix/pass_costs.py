"""What passes over the samples took so far, step by step: it tells what those to come take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

__all__ = ["PassCosts"]


class _Step(NamedTuple):
    seconds: float
    passes: float


@dataclass(frozen=True)
class PassCosts:
    """`first`: how many steps only ran the model, before anything was looked for or checked; None while all do."""

    steps: tuple[_Step, ...] = ()
    first: int | None = None

    def after(self, seconds: float, passes: float) -> PassCosts:
        """One step more."""
        return replace(self, steps=(*self.steps, _Step(seconds, passes)))

    def begun(self) -> PassCosts:
        """From now on something is looked for, or checked."""
        return replace(self, first=len(self.steps)) if self.first is None else self

    @property
    def tell(self) -> bool:
        """Whether there is enough to go by: a second, and a pass."""
        return sum(step.seconds for step in self.steps) >= 1 and sum(step.passes for step in self.steps) >= 1

    @property
    def run(self) -> float:
        """Seconds of a pass that only runs the model."""
        return _mean(self.steps[: self.first]) or self.mean

    @property
    def mean(self) -> float:
        """Of any pass."""
        return _mean(self.steps)

    @property
    def latest(self) -> float:
        """Of a pass of the latter half: walks node by node may be over, and what takes longer may have begun."""
        half, taken = sum(step.passes for step in self.steps) / 2, 0.0
        for number in reversed(range(len(self.steps))):
            taken += self.steps[number].passes
            if taken >= half:
                return _mean(self.steps[number:])
        return 0.0


def _mean(steps: Sequence[_Step]) -> float:
    passes = sum(step.passes for step in steps)
    return sum(step.seconds for step in steps) / passes if passes else 0.0
