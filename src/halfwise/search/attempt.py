"""A model, repaired or not, and the answer that was found for it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import onnx_ir as ir

from halfwise.core.reasons import Reason
from halfwise.model.model import Model
from halfwise.repair import Repair, Rule
from halfwise.search.nearby import around
from halfwise.search.noise_model import cost_of
from halfwise.search.prune import Kept
from halfwise.search.search import Search, Solution
from halfwise.search.speed import fastest

__all__ = ["LEAST_SAVED", "Attempt", "RepairSet", "by_rule", "near", "pruned", "saves", "sped"]

LEAST_SAVED = 0.5  # cost that repairs have to save: less is no more than another choice between equals
REACH = 2  # nodes from an FP32 node within which a repair may help it

RepairSet = tuple[tuple[Rule, Repair], ...]


@dataclass(frozen=True, eq=False)
class Attempt:
    """What was tried, and its answer."""

    model: Model
    repairs: RepairSet
    search: Search
    solution: Solution

    @property
    def met(self) -> bool:
        return self.solution.found.unseen_bound <= self.search.target_ratio or self.solution.found.met

    @property
    def overflows(self) -> bool:
        """Whether any value does in plain FP16, hidden or not."""
        return self.solution.noise is not None and bool(self.solution.noise.fatal)

    @property
    def mostly_kept(self) -> bool:
        """Whether so much stays in FP32 that any hope is worth a search: other errors may hide what repairs bring."""
        return 2 * len(self.solution.keep) > len(self.search.sites.free)

    @property
    def cost(self) -> float:
        return cost_of(self.solution.keep, self.solution.noise) if self.met else math.inf


def saves(repaired: Attempt, without: Attempt) -> bool:
    """Whether repairs pay: by what stays in FP32, and where they add to that themselves, by its number."""
    fewer = len(repaired.solution.keep) < len(without.solution.keep)
    return repaired.cost + LEAST_SAVED <= without.cost and (fewer or not repaired.search.ends)


def pruned(attempt: Attempt, names: Collection[str | None] = ()) -> Attempt:
    """Nothing in it that is not needed. `names` kept another model within the tolerance, and may do it here."""
    if not attempt.met:
        return attempt
    start = frozenset(site.node for site in attempt.search.sites.free if site.name in names)
    start = start or attempt.solution.keep
    return replace(attempt, solution=attempt.search.run(start=start, noise=attempt.solution.noise))


def sped(attempt: Attempt) -> Attempt:
    """With more in FP32 where that is faster, if time is what counts."""
    search, solution = attempt.search, attempt.solution
    if search.table is None or not solution.keep or not attempt.met:
        return attempt
    keep = fastest(
        search.sites,
        solution.keep,
        search.table,
        lambda nodes: search.measure(nodes).unseen_bound <= max(search.target_ratio, solution.found.unseen_bound),
    )
    if keep == solution.keep:
        return attempt
    order = sorted(keep - solution.keep, key=lambda node: search.sites.of[node].index)
    kept = (*solution.kept, *(Kept(node, Reason.FASTER, None) for node in order))
    return replace(attempt, solution=replace(solution, keep=keep, kept=kept, found=search.measure(keep)))


def near(keep: Iterable[ir.Node], found: RepairSet) -> RepairSet:
    """Repairs at or beside a node that stays in FP32."""
    names = {node.name for node in around(keep, REACH)}
    return tuple((rule, repair) for rule, repair in found if not names.isdisjoint(repair.nodes))


def by_rule(repairs: RepairSet) -> dict[str, RepairSet]:
    """The repairs of each rule, in their order."""
    groups: dict[str, RepairSet] = {}
    for rule, repair in repairs:
        groups[rule.id] = (*groups.get(rule.id, ()), (rule, repair))
    return groups
