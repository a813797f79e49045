"""What the answer of the main job took, and what it leaves in FP32."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from halfwise.core.formats import Format
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.precision.rewrite import rewrite
from halfwise.precision.typed_onnx import TypedWriter
from halfwise.search.cost import flops
from halfwise.search.tensor_statistics import TensorStatistics
from halfwise.verbs.fix.document import CostRecord

__all__ = ["Cost", "casts_of", "cost_of"]


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


def cost_of(runs: float, seconds: float, casts: int, decision: Decision, statistics: TensorStatistics) -> Cost:
    return Cost(runs, seconds, _peak_mb(), casts, _share(decision, statistics))


def casts_of(decision: Assignment) -> int:
    """The casts that a typed model would have."""
    return rewrite(decision, TypedWriter()).casts


def _share(decision: Decision, statistics: TensorStatistics) -> float:
    sites, formats = decision.sites, decision.formats
    work = {site.node: flops(site, statistics.sizes) for site in sites.all}
    total = sum(work.values())
    wide = sum(w for node, w in work.items() if formats.get(node) is Format.FP32 or not sites.of[node].free)
    return wide / total if total else 0.0


def _peak_mb() -> float:
    """The most memory this process held; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 1024 if sys.platform == "darwin" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit / 1024
