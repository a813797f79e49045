"""Chooses repairs by what they buy: a rewrite stays only where it saves FP32 nodes on this model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from halfwise.core.counting import Counts
from halfwise.core.errors import InputError
from halfwise.core.wording import counted
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import executions
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.choices import Choices
from halfwise.precision.sites import Sites
from halfwise.repair import Repair, Rule
from halfwise.search.applied_repairs import AppliedRepair, applied_repairs
from halfwise.search.attempt import LEAST_SAVED, Attempt, RepairSet, by_rule, near, pruned, saves, sped
from halfwise.search.context import EvaluationContext
from halfwise.search.diagnosis import Diagnosis, diagnosis_of
from halfwise.search.faithful import FAITHFUL_ON, Faithfulness
from halfwise.search.idle_repairs import IdleRepairs
from halfwise.search.journal import Journal, digest
from halfwise.search.least_cost import costs_as_much
from halfwise.search.prune import MANY
from halfwise.search.repair_gain import cost_left, least_left, noise_left
from halfwise.search.run_counter import Untried
from halfwise.search.search import LEAST_SETS, Search
from halfwise.search.sets import worst_first
from halfwise.search.tensor_statistics import BESIDE, ranges_if_asked, ranges_of
from halfwise.search.wrapped import at_ends, ends_of, kept_apart, kept_before, overflows

__all__ = ["RepairSelector", "Selection"]

ROUNDS = 3  # repairs may uncover places for others
DEARER = 2.0  # times the answer with repairs: what one without costs at least, where it is not pruned
PROMISING = 0.5  # of the all-FP16 error that a repair leaves
MUCH = 0.25  # of the nodes
FEW = 4  # executions that cost little more than one where they are one walk through a large model
HOPELESS = 0.8  # of it, foreseen at best: well above, as what is foreseen is no bound

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Selection:
    """The cheapest answer, the repairs in it, and what was wrong with the model as given."""

    best: Attempt
    repairs: tuple[AppliedRepair, ...]
    diagnosis: Diagnosis | None  # None where all of it may be in FP16


@dataclass(frozen=True, eq=False)
class RepairSelector:
    """Tries repairs on one model."""

    model: Model
    context: EvaluationContext
    feeds: Sequence[Feed]
    choices: Choices
    journal: Journal
    target_ratio: float
    notify: Callable[[str], None]
    start: frozenset[str] = frozenset()  # nodes that an earlier search over fewer samples kept
    before: tuple[Repair, ...] = ()  # that an earlier search of the same model took
    held_out: Sequence[Feed] = ()  # of which an answer is asked later
    _followed: dict[RepairSet, RepairSet] = field(default_factory=dict)  # repairs with what they make possible

    @property
    def _faithful(self) -> Faithfulness:
        return Faithfulness(self.model, self.context, self.choices, self.feeds[:FAITHFUL_ON])

    def best(self, rules: Sequence[Rule]) -> Selection:
        """The cheapest answer, and what its repairs saved; no repair is in it that does not pay."""
        return self._at_once(rules) or self._compared(rules)

    def _at_once(self, rules: Sequence[Rule]) -> Selection | None:
        """Of a large model that overflows: all repairs together, where they leave nothing in FP32. Which nodes would
        have to be without them is not looked for then, as each set takes a walk through all weights."""
        if not rules or self.start or self.before or not self.context.emulator.streams(self.model):
            return None
        asked, counter = (*self.feeds, *self.held_out), self.context.counter
        together = asked if executions(asked) <= FEW else ()
        follows = len(together or self.feeds) + 2 * FAITHFUL_ON + 1  # what is run where repairs are enough
        counter.hope(len(self.feeds) + follows)
        search = self._search(self.context.sites(self.model, self.choices), ())
        lost = search.lost()
        plain = None if lost is None else Attempt(self.model, (), search, lost)
        if plain is None or not self._affords_attempt(plain):
            return None
        few = self.context.looked_at(search.sites, self.feeds) or self.feeds[:1]
        counter.hope(follows)
        found = self._places(self.model, rules, few)
        if not found or not math.isfinite(least_left(plain, found)):
            return None
        every = self._with_what_follows(plain, rules, found, together)
        ratio = self._narrow(plain, every)
        if ratio is None or ratio > self.target_ratio:
            return None
        self._narrow(plain, every, asked)  # which remembers the others
        healed = self.attempt(every)
        if healed is None or healed.solution.keep:
            return None
        final, seen = self._idle(plain).left_out(healed), self.context.seen(search.sites, self.feeds).ranges()
        return Selection(final, applied_repairs(final, plain), diagnosis_of(plain, seen))

    def _compared(self, rules: Sequence[Rule]) -> Selection:
        """The cheapest of the answer without repairs and those with them."""
        self.context.counter.hope(None)
        plain = self.attempt(())
        assert plain is not None
        current = self._as_before(plain, rules) or plain
        seen = dict[str, Counts]()  # of the model as given, over one sample
        for _ in range(ROUNDS):
            if not current.solution.keep or not rules or not self._affords_attempt(current):
                break
            few = self.context.looked_at(current.search.sites, self.feeds) or self.feeds
            seen = seen or self.context.statistics(current.search.sites, few)[0].ranges()
            better = self._with_or_without_ends(current, rules, self._worth_trying(current, rules, few))
            if better is None:
                break
            current = better
        diagnosis, idle = diagnosis_of(plain, seen), self._idle(plain)
        final = idle.left_out_at_ends(pruned(idle.left_out(current)))
        without = self._without_any(plain, final)
        if without is not None and not saves(final, without):
            return Selection(sped(without), (), diagnosis)
        return Selection(sped(final), applied_repairs(final, plain), diagnosis)

    def _without_any(self, plain: Attempt, final: Attempt) -> Attempt | None:
        """The pruned answer without repairs; None where none were chosen, or it is seen to be dearer than with them."""
        search, keep, noise = plain.search, plain.solution.keep, plain.solution.noise
        if not final.repairs or not final.solution.keep or not search.judge.affords(Untried.REPAIRS, 2):
            return None
        many = plain.met and final.met and len(keep) > MANY and not search.judge.spent
        if many and noise is not None and costs_as_much(search, keep, noise.cost, DEARER * final.cost + LEAST_SAVED):
            return None
        return pruned(plain, names={node.name for node in final.solution.keep})

    def _as_before(self, plain: Attempt, rules: Sequence[Rule]) -> Attempt | None:
        """With the repairs of an earlier search, where they pay here, too: there may be no runs to find them again."""
        known = tuple((rule, repair) for repair in self.before for rule in rules if rule.id == repair.rule)
        if not known or not plain.solution.keep or not plain.search.judge.affords(Untried.REPAIRS, 1 + LEAST_SETS):
            return None
        found = self.attempt(known)
        return found if found is not None and found.cost < plain.cost else None

    def attempt(
        self, repairs: RepairSet, start: frozenset[str] = frozenset(), base: Attempt | None = None
    ) -> Attempt | None:
        """Search the model with these repairs; None where they change its FP32 answer beyond what the rules promise.

        Attempts are compared before they are pruned: what is left of the best is pruned then. `start` names FP32 nodes
        that are enough on one sample; where they are on all, what was seen of `base` is enough to know of the noise.
        """
        model, done = self.context.repaired(self.model, repairs)
        kept: RepairSet = tuple((rule, repair) for rule, repair in repairs if repair in done)
        search = self._search(self.context.sites(model, self.choices), kept)
        if kept and not self._faithful.holds(search.sites, kept):
            return None
        begin = frozenset(site.node for site in search.sites.free if site.name in (start or self.start))
        known = start and base is not None and search.measure(begin - search.must).unseen_bound <= self.target_ratio
        noise = noise_left(base, kept, search.sites) if base is not None and known else None
        return Attempt(model, kept, search, search.run(prune=False, start=begin, noise=noise))

    def _search(self, sites: Sites, repairs: RepairSet) -> Search:
        name = digest(*(str(repair) for _, repair in repairs))
        ends = ends_of((repair for _, repair in repairs), self.model, sites)
        asked = (*(feed.id for feed in self.feeds), *(each.profile.name for each in self.context.also))
        return Search(
            sites,
            self.context.judge(sites, self.feeds),
            self.context.stepper,
            self.journal,
            self.context.io,
            self.target_ratio,
            label=digest(name, *asked, self.context.finite),
            name=name,
            must=self.context.required(sites, self.feeds) | ends,
            ends=ends,
            notify=self.notify,
            table=self.context.table(sites, self.feeds),
            walks=self.context.walks,
        )

    def _worth_trying(self, current: Attempt, rules: Sequence[Rule], few: Sequence[Feed]) -> RepairSet:
        """Where rules hold over all inputs; nothing where none promises anything by what is known of a few of them."""
        found = self._places(current.model, rules, few)
        if len(few) == len(self.feeds):
            return found
        if not any(self._promises(current, rules, each) for each in self._sets(current, rules, found)):
            return ()
        ids = {rule.id for rule, _ in found}
        named = [rule for rule in rules if rule.id in ids]
        return self._places(current.model, named, self.feeds, late=True)

    def _promises(self, current: Attempt, rules: Sequence[Rule], found: RepairSet) -> bool:
        """Whether any of these are worth a search, together or rule by rule."""
        if self._healing(current, rules, found) or self._promising(current, (*current.repairs, *found)) is not None:
            return True
        parts = ((*current.repairs, *part) for part in by_rule(found).values())
        return any(self._promising(current, part, part=True) is not None for part in parts)

    def _sets(self, current: Attempt, rules: Sequence[Rule], everywhere: RepairSet) -> Iterator[RepairSet]:
        """Repairs to try together: near the FP32 nodes, then all, as what helps may lie elsewhere, or be made possible
        first."""
        close = near(current.solution.keep, everywhere)
        if close:
            yield close
        elsewhere = tuple(entry for entry in everywhere if entry not in close)
        if not everywhere or not self._affords_attempt(current):
            return
        if close and elsewhere and least_left(current, (*current.repairs, *elsewhere)) > HOPELESS:
            if not current.overflows:
                return
            everywhere = close
        wide = self._with_what_follows(current, rules, everywhere)
        if len(wide) > len(close):
            yield wide

    def _with_or_without_ends(self, current: Attempt, rules: Sequence[Rule], everywhere: RepairSet) -> Attempt | None:
        """The first set that pays. Factors at the ends of the graph stay in FP32: where nothing else does, or they do
        not pay, the same without them may."""
        sets = self._sets(current, rules, everywhere)
        better = next((found for each in sets if (found := self._better(current, rules, each)) is not None), None)
        most = better is not None and not better.solution.keep <= better.search.ends
        ids = {rule.id for rule, repair in everywhere if at_ends(repair)}
        if most or not ids or not self._affords_attempt(current):
            return better
        least = better or current
        within = self._places(current.model, [r for r in rules if r.id in ids], self.feeds, ends=False)
        every = (*current.repairs, *(entry for entry in everywhere if entry[0].id not in ids), *within)
        start = self._promising(current, every) if cost_left(current, every) < least.cost else None
        other = self.attempt(every, start, current) if start is not None else None
        return other if other is not None and other.cost < least.cost else better

    def _places(
        self, model: Model, rules: Sequence[Rule], feeds: Sequence[Feed], *, ends: bool = True, late: bool = False
    ) -> RepairSet:
        """Where a rule holds over these samples, and the user decided nothing; `late`: they are walked if one asks."""
        seen = partial(self.context.statistics, self.context.sites(model, self.choices), feeds)
        ranges = ranges_if_asked(seen) if late else ranges_of(seen())
        self.notify("looking for exact repairs")
        ranges = replace(ranges, ends=ends, walked=self.context.stepper.emulator.walked)
        return tuple(
            (rule, repair)
            for rule in rules
            for repair in self.context.found(rule, model, ranges, feeds)
            if self.choices.kept.keys().isdisjoint(repair.nodes)
        )

    def _healing(self, current: Attempt, rules: Sequence[Rule], found: RepairSet) -> RepairSet:
        """These with what they make possible, where values overflow with all of them, no rule alone is enough, and
        with all far less is left than with any rule, or less where most nodes stay in FP32; else none. A norm may hide
        an overflow: then the error is finite."""
        ratio = self._narrow(current, (*current.repairs, *found)) if self._affords_attempt(current) else None
        if ratio is None or ratio <= self.target_ratio or (math.isfinite(ratio) and not current.overflows):
            return ()
        every = self._with_what_follows(current, rules, found)
        if set(every) <= set(found):
            return ()
        alone = [self._narrow(current, (*current.repairs, *each)) for each in by_rule(found).values()]
        if any(ratio is None or ratio <= self.target_ratio for ratio in alone):
            return ()
        left = self._narrow(current, (*current.repairs, *every))
        least = min(each for each in alone if each is not None)
        enough = max(self.target_ratio, least if current.mostly_kept else PROMISING * least)
        return every if left is not None and math.isfinite(left) and left <= enough else ()

    def _narrow(self, base: Attempt, repairs: RepairSet, asked: Sequence[Feed] = ()) -> float | None:
        """What all-FP16 leaves on the worst sample with these repairs; None where it does not run with them. `asked`:
        samples of which a large model is asked in the same walk, as they are judged next."""
        sites = self.context.sites(self.context.repaired(self.model, repairs)[0], self.choices)
        ends = ends_of((repair for _, repair in repairs), self.model, sites)
        narrow = Assignment.all_narrow(sites, ends, self.context.io)
        failed, ratios = self.context.failures.trials, base.solution.fp16.ratios
        if asked:
            self.context.at_once(sites, asked, narrow)
        worst = max(range(len(ratios)), key=ratios.__getitem__)
        ratio = self.context.judge(sites, self.feeds).measure_one(narrow, worst)
        if self.context.failures.trials > failed and self._faithful.answers(sites, repairs[-1][0]) is None:
            return None
        return ratio

    def _with_what_follows(
        self, current: Attempt, rules: Sequence[Rule], found: RepairSet, asked: Sequence[Feed] = ()
    ) -> RepairSet:
        """These repairs, and those that they make possible: a pair may pay although neither does alone."""
        key = (*current.repairs, *found)
        if key not in self._followed:
            self._followed[key] = self._follow(current, rules, found, asked)
        return self._followed[key]

    def _follow(self, current: Attempt, rules: Sequence[Rule], found: RepairSet, asked: Sequence[Feed]) -> RepairSet:
        for _ in range(ROUNDS):
            model, done = self.context.repaired(self.model, (*current.repairs, *found))
            if len(done) <= len(current.repairs):
                break
            known, feeds = set(done), self.feeds
            worst = max(range(len(feeds)), key=current.solution.fp16.ratios.__getitem__)
            together = self.context.emulator.streams(model) and len(feeds) <= BESIDE
            few = feeds if together else feeds[worst : worst + 1]
            try:
                every = self._places(model, rules, few)
                if known.issuperset(repair for _, repair in every):
                    break
                if len(few) < len(feeds):
                    every = self._places(model, rules, feeds)
            except InputError as error:
                self.context.failures.repair(found[0][0].name, error)
                break
            found = (*(entry for entry in found if entry[1] in known), *(e for e in every if e[1] not in known))
            ratio = self._narrow(current, (*current.repairs, *found), asked)
            if ratio is not None and ratio <= self.target_ratio:  # nothing is left that others could save
                break
        return found

    def _better(self, current: Attempt, rules: Sequence[Rule], found: RepairSet) -> Attempt | None:
        """All of them; where that does not pay, rule by rule. Only what promises something is searched."""
        self.notify(f"trying {counted(len(found), 'repair')}")
        healing = self._healing(current, rules, found)
        healed = self.attempt((*current.repairs, *healing)) if healing else None
        if healed is not None and healed.cost < current.cost:
            return healed
        if (start := self._promising(current, (*current.repairs, *found))) is not None:
            whole = self.attempt((*current.repairs, *found), start, current)
            if whole is not None and whole.repairs != current.repairs and whole.cost < current.cost:
                return whole
        groups = by_rule(found)
        best: Attempt | None = None
        for group in groups.values() if len(groups) > 1 else ():
            base = best or current
            start = self._promising(base, (*base.repairs, *group), part=True) if self._affords_attempt(base) else None
            if start is None:
                continue
            trial = self.attempt((*base.repairs, *group), start, base)
            if trial is not None and trial.repairs != base.repairs and trial.cost < base.cost:
                best = trial
        return best

    def _affords_attempt(self, base: Attempt) -> bool:
        """Whether runs are left for one more search, and for what tells whether it is worth one. Once it is worth one
        where much stays in FP32, where bodies are searched, which takes many runs, and for overflows inside."""
        judge = base.search.judge
        much = bool(base.model.bodies) or len(base.solution.keep) >= MUCH * len(base.search.sites.free)
        once = (much and not base.repairs) or bool(base.search.overflowing)
        return (once or not judge.spent) and judge.affords(Untried.REPAIRS, 1 + LEAST_SETS, self._looks)

    def _affords_anew(self, base: Attempt) -> bool:
        """Whether runs are left for a search that heeds a held-out input, if this one's answer misses any."""
        judge = base.search.judge
        return not judge.counter.spent(judge.executions, (1 + LEAST_SETS) * judge.executions + self._looks)

    @property
    def _looks(self) -> float:
        """What a search takes before it measures a set, in executions."""
        return self.context.walks.passes + len(self.feeds) + 2 * FAITHFUL_ON

    def _promising(self, base: Attempt, repairs: RepairSet, part: bool = False) -> frozenset[str] | None:
        """Two short runs on the worst sample: less error in FP16 throughout, or enough with fewer FP32 nodes.

        None where repairs promise nothing; else the names of FP32 nodes to start with, where there are any. `part`:
        of repairs that promised nothing together.
        """
        model, done = self.context.repaired(self.model, repairs)
        if len(done) <= len(base.repairs):
            return None
        sites, new = self.context.sites(model, self.choices), repairs[len(base.repairs) :]
        judge, ratios = self.context.judge(sites, self.feeds), base.solution.fp16.ratios
        worst, names = worst_first(ratios)[0], {node.name for node in base.solution.keep}
        keep = frozenset(site.node for site in sites.free if site.name in names)
        wide = all(repair.wide for _, repair in new)
        if wide:
            keep = kept_before(keep, base.model, sites)
        elif not part or least_left(base, repairs) <= HOPELESS:
            ratio = self._narrow(base, repairs)
            if ratio is None:
                return None
            if math.isfinite(ratio) and ratio <= PROMISING * ratios[worst]:
                return frozenset()
        # Another overflow may be left elsewhere.
        if apart := not wide and len(keep) == len(names) and overflows(base, self.context, self.feeds):
            keep = kept_apart(keep, new, self.context.statistics(sites, self.feeds[worst : worst + 1])[0], sites.fmt)
            keep |= ends_of((repair for _, repair in repairs), self.model, sites)
        if len(keep) == (0 if wide else len(names)):
            return None
        if judge.measure_one(Assignment.all_narrow(sites, keep, self.context.io), worst) > self.target_ratio:
            return None
        return frozenset(node.name or "" for node in keep if wide or apart)

    def _idle(self, plain: Attempt) -> IdleRepairs:
        affords = self._affords_attempt, self._affords_anew
        return IdleRepairs(plain, self.context, self.feeds, self.choices, self.attempt, *affords, self.notify)
