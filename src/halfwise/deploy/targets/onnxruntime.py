"""Targets that are, or may be, ONNX Runtime: it has to load the model, and to run norms in one kernel each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from halfwise.core.targets import Target
from halfwise.deploy.onnxruntime.fit import adjust_for
from halfwise.deploy.onnxruntime.turned_products import products_first
from halfwise.deploy.targets.plain import PlainTarget
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision

__all__ = ["OnnxRuntime"]


@dataclass(frozen=True)
class OnnxRuntime(PlainTarget):
    """Norms are kept in one kernel where the provider fuses them."""

    def adjust(
        self,
        target: Target,
        decision: Decision,
        ratio: Callable[[Assignment], float],
        *,
        stated: Collection[str] = (),
        given: bool = False,
    ) -> Adjustment:
        fused = self.runtime.fuses_norms
        return adjust_for(decision, ratio, stated=stated, given=given, fused=fused, on_cpu=self.on_cpu)

    def as_written(self, assignment: Assignment) -> Assignment:
        return products_first(assignment) if self.on_cpu else assignment
