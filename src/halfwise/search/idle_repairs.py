"""Leaves out repairs of an answer that are not missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.model.inputs.feed import Feed
from halfwise.precision.assignment import Assignment
from halfwise.precision.choices import Choices
from halfwise.precision.sites import Sites
from halfwise.search.attempt import Attempt, RepairSet, by_rule, pruned
from halfwise.search.context import EvaluationContext
from halfwise.search.sets import worst_first
from halfwise.search.wrapped import at_ends

__all__ = ["IdleRepairs"]


@dataclass(frozen=True, eq=False)
class IdleRepairs:
    """Of answers beside `plain`, the one without repairs. `attempt` searches with repairs, from names of FP32 nodes
    that are enough; `affords` tells whether there are runs left for it, and `affords_anew` for a search behind it."""

    plain: Attempt
    context: EvaluationContext
    feeds: Sequence[Feed]
    choices: Choices
    attempt: Callable[[RepairSet, frozenset[str], Attempt | None], Attempt | None]
    affords: Callable[[Attempt], bool]
    affords_anew: Callable[[Attempt], bool]
    notify: Callable[[str], None]

    def left_out(self, current: Attempt) -> Attempt:
        """Leave out each rule, the last first, then places away from the nodes that needed help, that is not missed.
        Places take many runs and save no node: a search anew, where a held-out input asks for it, comes first."""
        needy = {node.name for node in self.plain.solution.keep}
        for group in reversed(by_rule(current.repairs).values()):
            current = self._without(current, group) or current
        waiting = [tuple(entry for entry in current.repairs if needy.isdisjoint(entry[1].nodes))]
        while waiting and self.affords_anew(current):
            group = waiting.pop()
            trial = self._without(current, group) if group else None
            if trial is None and len(group) > 1:  # the idle ones among them, by halving
                waiting += [group[len(group) // 2 :], group[: len(group) // 2]]
            current = trial or current
        return current

    def left_out_at_ends(self, final: Attempt) -> Attempt:
        """Leave out each at the ends of the graph without which no more nodes of a pruned answer stay in FP32: what it
        adds there does, too."""
        for entry in reversed([entry for entry in final.repairs if at_ends(entry[1])]):
            trial = self._without(final, (entry,))
            final = final if trial is None else pruned(trial)
        return final

    def _heals(self, current: Attempt, sites: Sites, keep: frozenset[ir.Node]) -> bool:
        """Whether values are lost inside without these repairs alone: a search anew would take them again."""
        lost = self.context.overflows(sites, self.feeds, keep)
        return bool(lost) and not self.context.overflows(current.search.sites, self.feeds, current.solution.keep)

    def _without(self, current: Attempt, group: RepairSet) -> Attempt | None:
        """An answer without these repairs; None where they are missed."""
        left_out, given = set(group), self.plain.model
        if len(current.repairs) <= 1 or not left_out <= set(current.repairs) or not self.affords(current):
            return None
        names = {node.name or "" for node in current.solution.keep}
        rest = tuple(entry for entry in current.repairs if entry not in left_out)
        model, done = self.context.repaired(given, rest)
        sites = self.context.sites(model, self.choices)
        gone = names - {site.name for site in sites.free}
        if len(done) != len(rest) or not gone.isdisjoint(given.node_by_name):
            return None
        if gone:  # what the repairs added there: what they touched takes its place
            touched = {name for _, repair in group for name in repair.nodes}
            names |= touched & {node.name or "" for node in self.plain.solution.keep}
        keep = frozenset(site.node for site in sites.free if site.name in names)
        if len(keep) > len(current.solution.keep):
            return None
        judge, target_ratio = self.context.judge(sites, self.feeds), current.search.target_ratio
        without = Assignment.all_narrow(sites, keep, self.context.io)
        if judge.measure_one(without, worst_first(current.solution.fp16.ratios)[0]) > target_ratio:
            return None
        if judge.measure(without).unseen_bound > target_ratio or self._heals(current, sites, keep):
            return None
        self.notify(f"{group[0][0].name} saves no FP32 node")
        if gone:
            return self.attempt(rest, frozenset(names), self.plain)
        trial = self.attempt(rest, frozenset(), None)
        return trial if trial is not None and trial.cost <= current.cost else None
