"""Fourth step: what a compiler makes of the decision, and what has to change for it to do as decided."""

from __future__ import annotations

from collections.abc import Sequence

from halfwise.compiler.compiled import Compiled, as_listed
from halfwise.compiler.fusion import with_fusion
from halfwise.deploy.advisories import Advisory
from halfwise.deploy.advisories.suspect_kernels import suspect_kernels
from halfwise.deploy.targets import kind_of
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.search.tensor_statistics import TensorStatistics
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["compile_decision"]


def compile_decision(
    prepared: Prepared,
    context: EvaluationContext,
    decided: Decided,
    decision: Decision,
    statistics: TensorStatistics,
    advisories: Sequence[Advisory],
) -> Compiled | None:
    """By the target's compiler, or one that can stand for it; None where nothing can compile it here."""
    request, samples = prepared.request, decided.samples
    if request.layers is not None:
        return as_listed(decision, request.layers)
    compiler = kind_of(request.target).compiler(request.target)
    if compiler is None:
        return None
    judge = context.judge(decided.sites, samples.search)

    def holds(other: Assignment) -> bool:
        return judge.measure(other).met

    compiled = compiler(
        decision,
        samples=samples.all,
        sizes=statistics.sizes,
        suspects=suspect_kernels(advisories),
        holds=holds if request.plan is None else None,
        folder=request.out,
        notify=request.notify,
        time_limit_s=request.time_limit_s,
        forced=request.choices.forced,
    )
    if decided.model.ir is prepared.model.ir:  # not repaired
        return compiled
    return with_fusion(compiled, prepared.sites, samples.all, request.out, request.notify, request.time_limit_s)
