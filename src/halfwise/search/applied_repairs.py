"""The repairs of an answer, each with the FP32 nodes that it saved."""

from __future__ import annotations

from dataclasses import dataclass

from halfwise.precision.plan_document import RepairRecord
from halfwise.repair import Repair
from halfwise.search.attempt import Attempt
from halfwise.search.nearby import nearest

__all__ = ["AppliedRepair", "applied_repairs"]


@dataclass(frozen=True)
class AppliedRepair:
    """A repair that was applied, and what it saved: the nodes there that were in FP32 without any repair."""

    repair: Repair
    saved: tuple[str, ...]

    def document(self) -> RepairRecord:
        return self.repair.document(self.saved)


def applied_repairs(final: Attempt, plain: Attempt) -> tuple[AppliedRepair, ...]:
    """The FP32 nodes that are no more, each under the repair that is at that node or nearest to it."""
    kept = {node.name for node in final.solution.keep}
    saved: list[list[str]] = [[] for _ in final.repairs]
    places = {name: index for index, (_, repair) in reversed(list(enumerate(final.repairs))) for name in repair.nodes}
    for node in sorted(plain.solution.keep, key=lambda each: plain.search.sites.of[each].index):
        index = nearest(node, places) if node.name not in kept else None
        if index is not None:
            saved[index].append(node.name or "")
    return tuple(AppliedRepair(repair, tuple(names)) for (_, repair), names in zip(final.repairs, saved, strict=True))
