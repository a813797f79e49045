"""What the answer of the main job took, and what it leaves in FP32."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from halfwise.core.formats import Format
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.precision.rewrite import rewrite
from halfwise.precision.sites import Site
from halfwise.precision.typed_onnx import TypedWriter
from halfwise.search.cost import flops
from halfwise.search.tensor_statistics import TensorStatistics
from halfwise.verbs.fix.document import CostRecord

__all__ = ["Arithmetic", "Cost", "arithmetic_of", "casts_of", "cost_of"]


@dataclass(frozen=True)
class Cost:
    """Passes over the samples, time, memory; casts, and the share of the arithmetic that is FP32."""

    model_runs: float
    seconds: float
    peak_rss_mb: float
    casts: int
    fp32_flops_share: float

    def document(self) -> CostRecord:
        return CostRecord(
            model_runs=round(self.model_runs, 2),
            seconds=round(self.seconds, 3),
            peak_rss_mb=round(self.peak_rss_mb, 1),
            casts=self.casts,
            fp32_flops_share=round(self.fp32_flops_share, 6),
        )


@dataclass(frozen=True)
class Arithmetic:
    """The share of the arithmetic that the decision keeps in FP32, the share that cannot narrow, and where most of
    that is."""

    kept: float
    pinned: float
    most_pinned: Site | None


def cost_of(runs: float, seconds: float, casts: int, arithmetic: Arithmetic) -> Cost:
    return Cost(runs, seconds, _peak_mb(), casts, arithmetic.kept + arithmetic.pinned)


def arithmetic_of(decision: Decision, statistics: TensorStatistics) -> Arithmetic:
    work = {site: flops(site, statistics.sizes) for site in decision.sites.all}
    total = sum(work.values()) or 1.0
    kept = sum(each for site, each in work.items() if site.free and decision.formats.get(site.node) is Format.FP32)
    pinned = {site: each for site, each in work.items() if not site.free}
    most = max(pinned, key=lambda site: pinned[site], default=None)
    return Arithmetic(kept / total, sum(pinned.values()) / total, most)


def casts_of(decision: Assignment) -> int:
    """The casts that a typed model would have."""
    return rewrite(decision, TypedWriter()).casts


def _peak_mb() -> float:
    """The most memory this process held; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 1024 if sys.platform == "darwin" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit / 1024
