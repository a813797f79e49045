"""A fusion: nodes that run as one kernel, and what finds them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import onnx
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.emulation.profiles.norm_fusions import Norm, Outcome, outcome, reads_epsilon
from halfwise.emulation.profiles.steps import Steps
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["FusedKernel", "Fusion", "FusionRule"]

# Spells a fusion as its kernel computes it, from its nodes as they were spelled; None where it rounds at its end only.
FusedKernel = Callable[["Fusion", Mapping[ir.Node, onnx.NodeProto], Steps], "str | None"]


@dataclass(frozen=True, eq=False)
class Fusion:
    """Nodes that run as one kernel; `last` gives its result. `data` is the tensor and `factor` the number it needs.

    They work in one format; of a norm, see `norm_fusions`. `kernel`: how it computes, where its kind does not tell.
    """

    kind: str
    nodes: tuple[ir.Node, ...]
    last: ir.Node
    data: ir.Value | None = None
    factor: float = 1.0
    norm: Norm | None = None
    kernel: FusedKernel | None = None
    own_epsilon: bool = False  # an RMSNorm whose kernel does not read the epsilon that it is given

    def fires(self, assignment: Assignment) -> bool:
        formats = {assignment.of(node) for node in self.nodes}
        if formats == {Format.FP32}:
            return False  # nothing in it is rounded anyway
        if self.norm is None:
            return len(formats) == 1
        return (
            self.own_epsilon is not reads_epsilon(self.norm, assignment)
            and outcome(self.norm, assignment) is Outcome.FUSED
        )

    @property
    def inside(self) -> tuple[ir.Value, ...]:
        return tuple(value for node in self.nodes if node is not self.last for value in node.outputs)

    def closed(self, outputs: Collection[ir.Value]) -> bool:
        """Whether nothing outside reads what happens inside."""
        members = set(self.nodes)
        return all(value not in outputs and all(user in members for user, _ in value.uses()) for value in self.inside)


class FusionRule(Protocol):
    """A rule that is no name: it finds its own candidates, and is one key of what was found."""

    def fusions(self, sites: Sites) -> Iterator[Fusion]: ...

    def __hash__(self) -> int: ...
