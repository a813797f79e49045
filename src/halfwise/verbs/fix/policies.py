"""What other tools' lists would have kept in FP32 of a model, beside what was found to need it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from halfwise.core.counting import Counts
from halfwise.model.model import Model
from halfwise.precision.lists import POLICIES, Policy
from halfwise.precision.selectors import Selection, kept_by

__all__ = ["Compared", "compare_policies"]


@dataclass(frozen=True)
class Compared:
    """How many nodes that could be FP16 a list keeps in FP32, and how many of these are kept here, too."""

    policy: Policy
    nodes: int
    shared: int

    def to_json(self) -> dict[str, Any]:
        return {
            "policy": self.policy.name,
            "source": self.policy.source,
            "fp32_nodes": self.nodes,
            "shared": self.shared,
        }


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
