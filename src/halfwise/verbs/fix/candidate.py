"""A decision on the way to the result, and what was learned of it by searching, fitting and compiling."""

from __future__ import annotations

from dataclasses import dataclass, replace

from halfwise.compiler.compiled import Compiled
from halfwise.core.notes import Note
from halfwise.deploy.advisories import Advisory
from halfwise.precision.decision import Adjustment, Decision
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.search.search import Kept
from halfwise.search.tensor_statistics import TensorStatistics

__all__ = ["Candidate"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """`adjustment` is the decision as the target and the compiler have it."""

    decided: Decided
    statistics: TensorStatistics
    advisories: tuple[Advisory, ...]
    adjustment: Adjustment
    compiled: Compiled | None
    kept: tuple[Kept, ...]
    proven: frozenset[str] = frozenset()  # nodes without which it was measured to miss, each alone

    @property
    def decision(self) -> Decision:
        return self.adjustment.decision

    def noting(self, *notes: Note) -> Candidate:
        return replace(self, adjustment=self.adjustment.noting(*notes))

    def holds(self, context: EvaluationContext) -> bool:
        """Whether it keeps the tolerance on held-out inputs, by all that judge in a context."""
        judge = context.judge(self.decided.sites, self.decided.samples.validation)
        return judge.measure(self.decision.assignment).met
