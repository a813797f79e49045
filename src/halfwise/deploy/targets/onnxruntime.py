"""Targets that are, or may be, ONNX Runtime: it has to load the model, and to run norms in one kernel each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from halfwise.compiler.compiled import Decision
from halfwise.core.targets import Target
from halfwise.deploy.onnxruntime.fit import settle_for
from halfwise.deploy.onnxruntime.settling import Settled
from halfwise.deploy.targets.kind import TargetKind
from halfwise.precision.assignment import Assignment

__all__ = ["OnnxRuntime"]


@dataclass(frozen=True)
class OnnxRuntime(TargetKind):
    """`on_cpu`: the model may also run on the CPU provider."""

    on_cpu: bool = False

    def adjust(
        self,
        target: Target,
        decision: Decision,
        ratio: Callable[[Assignment], float],
        *,
        stated: Collection[str] = (),
        given: bool = False,
    ) -> Settled:
        fused = self.runtime.fuses_norms
        return settle_for(decision, ratio, stated=stated, given=given, fused=fused, on_cpu=self.on_cpu)
