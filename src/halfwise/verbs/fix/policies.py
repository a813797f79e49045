"""What other tools' lists would have kept in FP32 of a model, beside what was found to need it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from halfwise.core.counting import Counts
from halfwise.model.model import Model
from halfwise.precision.lists import POLICIES, Policy
from halfwise.precision.selectors import Selection, kept_by
from halfwise.verbs.fix.document import PolicyRecord

__all__ = ["Compared", "compare_policies"]


@dataclass(frozen=True)
class Compared:
    """How many nodes that could be FP16 a list keeps in FP32, and how many of these are kept here, too."""

    policy: Policy
    nodes: int
    shared: int

    def document(self) -> PolicyRecord:
        return PolicyRecord(self.policy.name, self.policy.source, self.nodes, self.shared)


def compare_policies(
    model: Model, kept: Collection[str], ranges: Mapping[str, Counts] | None = None
) -> tuple[Compared, ...]:
    """`kept` are the names of the nodes in FP32; `ranges` those of tensors, for the lists that go by magnitude."""
    selection = Selection(model)
    found = []
    for policy in POLICIES.values():
        names = {name for name in kept_by(policy, selection, ranges) if selection.by_name[name].free}
        found.append(Compared(policy, len(names), len(names & set(kept))))
    return tuple(found)
