"""Predicted time of a decision, kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from halfwise.core.float_sum import float_sum
from halfwise.core.formats import Format
from halfwise.emulation.latency.kernels import Kernel, Shapes, kernels_of
from halfwise.emulation.timing.law import Law
from halfwise.emulation.timing.record import Precision
from halfwise.precision.assignment import Assignment

__all__ = ["Latency", "latency_of"]

CASTS = "(casts)"


@dataclass(frozen=True, eq=False)
class Latency:
    """Kernels and what each takes, in microseconds."""

    kernels: tuple[tuple[Kernel, float], ...]

    @cached_property
    def milliseconds(self) -> float:
        return float_sum(each for _, each in self.kernels) / 1e3

    @cached_property
    def by_node(self) -> Mapping[str, float]:
        """Milliseconds under the last node of each kernel; casts together."""
        found: dict[str, float] = {}
        for kernel, each in self.kernels:
            name = kernel.nodes[-1] if kernel.nodes else CASTS
            found[name] = found.get(name, 0.0) + each / 1e3
        return found


def latency_of(assignment: Assignment, shapes: Shapes, law: Law, *, tf32: bool = False, rule: str = "ort") -> Latency:
    wide: Precision = "tf32" if tf32 else "fp32"
    kernels = tuple(kernels_of(assignment, shapes, rule))
    missed = law.missed(sum(kernel.weights for kernel in kernels))
    return Latency(
        tuple(
            (kernel, law.microseconds(kernel.operation, wide if kernel.format is Format.FP32 else "fp16", missed))
            for kernel in kernels
        )
    )
