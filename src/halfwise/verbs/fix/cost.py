"""What the answer of the main job took, and what it leaves in FP32."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.float_sum import float_sum
from halfwise.core.formats import Format
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.precision.rewrite import rewrite
from halfwise.precision.sites import Site
from halfwise.precision.typed_onnx import TypedWriter
from halfwise.search.cost import flops
from halfwise.search.tensor_statistics import TensorStatistics
from halfwise.verbs.fix.document import CostRecord

__all__ = ["Arithmetic", "Cost", "arithmetic_of", "casts_of", "computes_double", "cost_of"]

LITTLE = 0.1  # of the arithmetic that is not narrow


@dataclass(frozen=True)
class Cost:
    """Passes over the samples, time, memory; casts, and the share of the arithmetic that is not narrow: in FP32, or in
    `wide`, the types that do most of it."""

    model_runs: float
    seconds: float
    peak_rss_mb: float
    casts: int
    fp32_flops_share: float
    wide: tuple[str, ...]

    @property
    def left_in(self) -> str:
        return " and ".join(self.wide)

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
    """The share of the arithmetic that the decision keeps in FP32, how much of it as the compiler needs it, where most
    of that is, the share that cannot narrow, where most of that is, and the types of all, the most work first."""

    kept: float
    built: float
    most_built: Site | None
    pinned: float
    most_pinned: Site | None
    wide: tuple[str, ...]


def cost_of(runs: float, seconds: float, casts: int, arithmetic: Arithmetic) -> Cost:
    return Cost(runs, seconds, _peak_mb(), casts, arithmetic.kept + arithmetic.pinned, arithmetic.wide)


def arithmetic_of(decision: Decision, statistics: TensorStatistics, built: Collection[str]) -> Arithmetic:
    """`built`: the nodes that the compiler needs in FP32."""
    work = {site: flops(site, statistics.sizes) for site in decision.sites.all}
    total = float_sum(work.values()) or 1.0
    kept = {s: each for s, each in work.items() if s.free and decision.formats.get(s.node) is Format.FP32}
    pinned = {site: each for site, each in work.items() if not site.free}
    needed = {site: each for site, each in kept.items() if site.name in built}
    most_built = max(needed, key=lambda site: needed[site], default=None)
    most = max(pinned, key=lambda site: pinned[site], default=None)
    wide = _types({**kept, **pinned})
    shares = [float_sum(each.values()) / total for each in (kept, needed, pinned)]
    return Arithmetic(shares[0], shares[1], most_built, shares[2], most, wide)


def computes_double(node: ir.Node) -> bool:
    return any(value is not None and value.dtype is ir.DataType.DOUBLE for value in (*node.inputs, *node.outputs))


def _types(work: Mapping[Site, float]) -> tuple[str, ...]:
    """The types that this work is done in, but for those that do little of it."""
    done: dict[str, float] = defaultdict(float)
    for site, each in work.items():
        done["FP64" if computes_double(site.node) else "FP32" if site.has_fp32 else "integers"] += each
    least = LITTLE * float_sum(done.values())
    return tuple(name for name in sorted(done, key=lambda name: -done[name]) if done[name] > least) or ("FP32",)


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
