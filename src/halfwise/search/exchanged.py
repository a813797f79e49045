"""The answer with a few nodes exchanged for cheaper ones, where all inputs bear it as well: those held out, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from halfwise.emulation.profiles import WIDE
from halfwise.model.inputs.feed import Feed
from halfwise.search.attempt import Attempt
from halfwise.search.context import EvaluationContext
from halfwise.search.exchange import Exchange
from halfwise.search.held_inputs import HELD_OUT_TARGET, Inputs
from halfwise.search.in_turn import InTurn
from halfwise.search.judge import Judge, Measured, unseen_bound
from halfwise.search.prune import kept_node
from halfwise.search.repair_selector import Selection
from halfwise.search.run_counter import Untried
from halfwise.search.variants import in_order, varied

__all__ = ["exchanged"]

Nodes = frozenset[ir.Node]


def exchanged(found: Selection, inputs: Inputs, context: EvaluationContext) -> Selection:
    """Nothing is exchanged where what was found misses an input, or the wide profile: it is searched for anew."""
    best, solution = found.best, found.best.solution
    if not solution.keep or solution.noise is None or best.search.table is not None or best.search.judge.spent:
        return found
    asked = _Asked(best, inputs, context)
    if not asked.met:
        return found
    keep = Exchange(best.search, solution.noise, asked.feeds, asked.limits, asked.judge, asked.hold).run(solution.keep)
    if keep == solution.keep:
        return found
    kept = [each for each in solution.kept if each.node in keep]
    kept += [kept_node(node, None, solution.noise.fatal) for node in keep - solution.keep]
    kept.sort(key=lambda each: best.search.sites.of[each.node].index)
    changed = replace(solution, keep=keep, kept=tuple(kept), found=best.search.measure(keep))
    return replace(found, best=replace(best, solution=changed))


class _Asked:
    """What is asked of a set in place of the one that was found: `feeds` one by one, then all that is promised."""

    def __init__(self, best: Attempt, inputs: Inputs, context: EvaluationContext) -> None:
        self._best = best
        self._context = context
        self._inputs = inputs
        self.feeds = tuple(dict.fromkeys((*inputs.search, *inputs.held_out)))
        searched = len(inputs.search)
        before = best.search.assignment(best.solution.keep)
        now = [self.judge([feed]).measure(before) for feed in self.feeds]
        self.met = all(each.met for each in now) and self._wide(inputs.given.all).measure(before).met
        self.limits = [1.0 if place < searched else max(HELD_OUT_TARGET, each.ratio) for place, each in enumerate(now)]
        promising = len(self.feeds) if inputs.given.origin == "given" else searched
        given = [place for place, feed in enumerate(self.feeds) if feed in inputs.given.all]
        self._promised = [range(promising), given if promising == len(self.feeds) else range(searched)]
        self._most = [max(unseen_bound([now[place] for place in places]), 1.0) for places in self._promised]
        self._rounded_less = InTurn(self._wide, lambda: inputs.given.all, before, 1.0)
        self._others = InTurn(self.judge, self._fresh, before, HELD_OUT_TARGET, 1.0)

    def judge(self, feeds: Sequence[Feed]) -> Judge:
        return self._context.judge(self._best.search.sites, feeds)

    def hold(self, keep: Nodes, seen: Sequence[Measured]) -> bool:
        bounds = [unseen_bound([seen[place] for place in places]) for places in self._promised]
        if any(bound > most for bound, most in zip(bounds, self._most, strict=True)):
            return False
        most = 4 * len(self._inputs.given.all) * (1 + len(self._context.also))  # FP32, before, and twice now
        if not self._context.counter.free(most, Untried.SETS):
            return False
        decision = self._best.search.assignment(keep)
        return self._rounded_less.bears(decision) and self._others.bears(decision)

    def _wide(self, feeds: Sequence[Feed]) -> Judge:
        return self._context.under(WIDE).judge(self._best.search.sites, feeds)

    def _fresh(self) -> tuple[Feed, ...]:
        """Inputs near those given that had no part in the choice of a set: of many sets one fits by chance."""
        return varied(in_order(self._inputs.given), self.feeds, self._context.references, seed=len(self.feeds))
