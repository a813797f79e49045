"""A decision on the way to the result, and what was learned of it by searching, fitting and compiling."""

from __future__ import annotations

from dataclasses import dataclass

from halfwise.compiler.compiled import Compiled
from halfwise.deploy.advisories import Advisory
from halfwise.precision.decision import Adjusted
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.search.search import Kept
from halfwise.search.tensor_statistics import TensorStatistics

__all__ = ["Candidate"]


@dataclass(frozen=True, eq=False)
class Candidate(Adjusted):
    """A decision with all that was found on the way to it."""

    decided: Decided
    statistics: TensorStatistics
    advisories: tuple[Advisory, ...]
    compiled: Compiled | None
    kept: tuple[Kept, ...]
    proven: frozenset[str] = frozenset()  # nodes without which it was measured to miss, each alone

    def holds(self, context: EvaluationContext) -> bool:
        """Whether it keeps the tolerance on held-out inputs, by all that judge in a context."""
        judge = context.judge(self.decided.sites, self.decided.samples.validation)
        return judge.measure(self.decision.assignment).met

    def missed(self, context: EvaluationContext) -> tuple[str, ...]:
        """The profiles of a context under which it misses the tolerance."""
        judge = context.judge(self.decided.sites, self.decided.samples.validation)
        return tuple(name for name, seen in judge.by_profile(self.decision.assignment).items() if not seen.met)
