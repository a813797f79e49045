"""A decision on the way to the result, and what was learned of it by searching, fitting and compiling."""

from __future__ import annotations

from dataclasses import dataclass

from halfwise.compiler.compiled import Compiled
from halfwise.deploy.advisories import Advisory
from halfwise.precision.decision import Adjusted
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.search.judge import Measured
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
        """Whether it keeps the tolerance by all that judge in a context."""
        return all(seen.met for seen in self.by_profile(context).values())

    def ratio(self, context: EvaluationContext) -> float:
        """Its worst error there over the allowed one."""
        return max(seen.ratio for seen in self.by_profile(context).values())

    def by_profile(self, context: EvaluationContext) -> dict[str, Measured]:
        """Its error over all inputs, as each profile of a context sees it."""
        return context.over_all(self.decided.sites, self.decided.samples, self.decision.assignment)

    def lost(self, context: EvaluationContext) -> tuple[str, ...]:
        """The nodes at which it makes values infinite that are finite in FP32, and that are no harmless matter."""
        sites, kept = self.decided.sites, frozenset(self.decision.formats)
        pieces = context.overflows(sites, self.decided.samples.search, kept)
        nodes = {node for needs in pieces if not needs <= kept for node in needs - kept}
        return tuple(site.name for site in sites.all if site.node in nodes)
