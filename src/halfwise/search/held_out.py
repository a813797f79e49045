"""Decides: searches, repairs where that saves FP32 nodes, and checks on held-out inputs until they are met too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.wording import counted
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import executions
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.choices import Choices
from halfwise.precision.sites import Sites
from halfwise.repair import Repair, Rule
from halfwise.search.applied_repairs import AppliedRepair
from halfwise.search.attempt import Attempt
from halfwise.search.choose import least_step
from halfwise.search.context import EvaluationContext
from halfwise.search.diagnosis import Diagnosis
from halfwise.search.exchanged import exchanged
from halfwise.search.held_inputs import HELD_OUT_TARGET, Inputs
from halfwise.search.journal import Journal, digest
from halfwise.search.judge import Judge, Measured, over_all, unseen_bound
from halfwise.search.jumps import jumping
from halfwise.search.luck import luck
from halfwise.search.noise_model import NoiseModel, noise_of_one
from halfwise.search.prune import Kept, kept_node
from halfwise.search.quantiser_steps import Movement, beyond_fp16, has_quantisers
from halfwise.search.repair_selector import RepairSelector, Selection
from halfwise.search.run_counter import Untried
from halfwise.search.search import LEAST_SETS, Point, Search
from halfwise.search.serving import deciding
from halfwise.search.variants import JUDGED, worth_variants
from halfwise.search.walks import CLOSE

__all__ = ["HALVINGS", "LARGER", "Decided", "HeldOutSearch", "why_not_bf16"]

DEAR = 2.0  # times the nodes found: what choices depend on is not kept as a whole while a search may find fewer
TURNS = 5  # searches, each told what the one before it missed
TARGET = 0.95  # of the tolerance, for inputs that were not given
LEAST_STEP = 0.3  # of the target before: no search aims at less than this of what the last one reached
HARDER = 1.5  # times the worst ratio searched: such a held-out input teaches more than a lower target
LARGER = 3  # sets tried where no search is to be had any more
UNKNOWN = 1 / 64  # of the squared error is left, where it is infinite
HALVINGS = 4  # of what lies between a set that misses the held-out inputs and a larger one that does not
WORTH_HALVING = 16  # nodes, that a half has to save


@dataclass(frozen=True, eq=False)
class Decided:
    """The decision: the model it is about (repaired or as given), and the formats of the nodes that do not narrow."""

    model: Model
    sites: Sites
    formats: dict[ir.Node, Format]
    kept: tuple[Kept, ...]
    samples: Samples
    repairs: tuple[AppliedRepair, ...] = ()
    curve: tuple[Point, ...] = ()
    notes: tuple[Note, ...] = ()
    diagnosis: Diagnosis | None = None  # None where nothing was wrong or nothing was searched
    variants: tuple[Feed, ...] = ()  # of the inputs, where these are too few to judge alone
    luck: float = 1.0  # how many times the error of the inputs given others are to expect


@dataclass(frozen=True, eq=False)
class HeldOutSearch:
    """One question about one model. What is asked of it, and what is remembered of the answers so far."""

    model: Model
    context: EvaluationContext
    samples: Samples
    rules: Sequence[Rule]
    choices: Choices
    journal: Journal
    allow_bf16: bool
    wants_curve: bool
    notify: Callable[[str], None]

    start: frozenset[str] = frozenset()  # nodes that another search kept
    before: tuple[Repair, ...] = ()  # that another search took

    def run(self) -> Decided:
        """Search; where a held-out input is missed it joins the search, and others stay held out."""
        inputs, notes, target, start = Inputs(self.samples), list[Note](), 1.0, self.start
        near: tuple[Selection, Measured] | None = None  # met, but inputs not given may miss it
        safe: Selection | None = None
        for turn in range(TURNS):
            self.context.counter.search()
            found = self._selected(inputs, target, start)
            best = found.best
            self.context.counter.found()
            self.notify("verifying on held-out inputs")
            inputs, feeds, missed = self._held_out(best, inputs, final=turn == TURNS - 1)
            expected, reached = self._expected(best, missed, inputs), best.solution.found
            hopeless = len(best.solution.keep) == len(best.search.sites.free) - len(best.search.sites.forced)
            if near is not None and (hopeless or reached.unseen_bound > target):
                found, missed = near  # what is not to be had is not worth every node
            elif (
                hopeless
                or _is_met(missed.ratio, expected)
                or (safe := self._with_choices(found, inputs, first=turn == 0)) is not None
            ):
                break
            elif turn == TURNS - 1 or not self._affords_search(best):
                found = self._larger(found, feeds, missed, expected)
            elif missed.ratio > min(HELD_OUT_TARGET, HARDER * reached.ratio):
                target, near = 1.0, None
                inputs, note = inputs.with_searched(_worst(feeds, missed), self.context.references)
                self.context.counter.over(executions(inputs.given.search))
                start = frozenset(node.name or "" for node in best.solution.keep)
                notes.append(note)
                continue
            else:
                near = found, missed
                target = min(target, reached.unseen_bound) * max(TARGET / expected, LEAST_STEP)
                continue
            break
        found = safe or exchanged(found, inputs, self.context)
        if found.best.solution.keep and found.best.search.judge.spent:
            most = self.context.counter.most_passes
            notes.append(Note.of(NoteKind.RUNS_SPENT, runs=round(most), more=5 * round(most)))
        return self._decided(found, inputs, tuple(notes))

    def _held_out(self, best: Attempt, inputs: Inputs, final: bool) -> tuple[Inputs, tuple[Feed, ...], Measured]:
        """The error on held-out inputs; where few were given and others may be worse, on variants of them, too."""
        decision = best.search.assignment(best.solution.keep)
        given = inputs.given.validation
        missed = self.context.judge(best.search.sites, given).measure(decision)
        if missed.ratio > HELD_OUT_TARGET or (best.search.judge.spent and not any(jumping(self.model))):
            return inputs, given, missed
        doubtful = worth_variants(self.model, (*best.solution.found.ratios, *missed.ratios))
        if doubtful and (inputs.variants is not None or self._affords_variants(best, inputs)):
            inputs = inputs.with_variants(self.context.references)
        judged, groups = given, self._worst_first(best, missed, inputs)
        for place, more in enumerate(groups):
            if place == 1:  # the worst is met: so are all, most likely
                self.context.at_once(best.search.sites, [feed for each in groups[1:] for feed in each], decision)
            found = self.context.judge(best.search.sites, more).measure(decision)
            if beyond := self._beyond(more, found):
                inputs = replace(inputs, beyond=(*inputs.beyond, *beyond))
                if not (more := tuple(feed for feed in more if feed not in beyond)):
                    continue
                found = self.context.judge(best.search.sites, more).measure(decision)
            judged, missed = (*judged, *more), over_all([missed, found])
            if missed.ratio > 1.0 and not final and self._affords_search(best):
                break  # the others are asked about the next answer
        return inputs, judged, missed

    def _beyond(self, variants: Sequence[Feed], found: Measured) -> tuple[Feed, ...]:
        """The variants that are missed for steps of quantisers which FP32 takes, too."""
        missed = {feed: ratio for feed, ratio in zip(variants, found.ratios, strict=True) if ratio > HELD_OUT_TARGET}
        sites, context = self.context.sites(self.model, self.choices), self.context
        if not missed or not has_quantisers(sites):
            return ()
        feeds = tuple(missed)
        answers = context.references.of(feeds)
        movement = Movement(sites, context.emulator, context.question, feeds, answers, context.counter)
        return beyond_fp16(movement, tuple(missed.values()))

    def _affords_search(self, best: Attempt) -> bool:
        """Whether there are runs left for one more search, with an input more."""
        judge = best.search.judge
        return not judge.spent and judge.affords(Untried.ANEW, 1 + LEAST_SETS, self.context.walks.passes + 2)

    def _affords_variants(self, best: Attempt, inputs: Inputs) -> bool:
        """Whether there are runs left to look at variants, and to act upon what they tell."""
        profiles = 1 + len(self.context.also)
        looked = max(JUDGED - len(inputs.given.all), 0) * (1 + profiles)
        acted = self.context.walks.passes + LARGER * JUDGED * profiles
        return best.search.judge.affords(Untried.VARIANTS, 1 + LEAST_SETS, looked + acted)

    def _worst_first(self, best: Attempt, held_out: Measured, inputs: Inputs) -> list[tuple[Feed, ...]]:
        """The variants that are held out, together with those of the same input, that of the worst input first."""
        ratios = (*best.solution.found.ratios, *held_out.ratios)
        inputs_run = (*inputs.search, *inputs.given.validation)
        of_source = {feed.id: ratio for feed, ratio in zip(inputs_run, ratios, strict=True)}
        groups: dict[int, tuple[Feed, ...]] = {}
        for feed in inputs.held_out[len(inputs.given.validation) :]:
            source = feed.id if feed.source is None else feed.source
            groups[source] = (*groups.get(source, ()), feed)
        return [groups[source] for source in sorted(groups, key=lambda each: -of_source.get(each, 0.0))]

    def _larger(self, found: Selection, feeds: Sequence[Feed], missed: Measured, expected: float) -> Selection:
        """Nothing is searched anew: what FP16 does to the input that is missed the most is kept from it, until all that
        are held out are met."""
        best, held = found.best, missed
        search, keep = best.search, best.solution.keep
        seen = self.context.counter.free(CLOSE.passes + 2 * len(feeds), Untried.ANEW)
        noise = self._of_worst(search, feeds, missed) if seen else best.solution.noise or search.noise()
        ladder, goal, count, low = noise.ladder(keep), noise.left(keep), 0, 0
        judge = self.context.judge(search.sites, feeds)
        for left in reversed(range(LARGER + seen)):
            if left and not judge.affords(Untried.SETS, 2):
                continue
            if _is_met(held.ratio, expected) or count >= len(ladder.steps):
                break
            low = count
            goal *= (TARGET / max(expected, held.ratio)) ** 2 if math.isfinite(expected) else UNKNOWN
            foreseen = held.ratio <= 1.0 or left == LARGER
            least = count + 1 if foreseen else len(ladder.steps) >> left  # all of it at the last
            count = max(ladder.reach(goal), least)
            keep = best.solution.keep | ladder.nodes(count)
            held = self._on_held_out(search, judge, keep)
            expected = held.unseen_bound
        if held.ratio > 1.0 and (whole := self._with_hidden(found, feeds, keep, noise)) is not None:
            return whole
        if keep == best.solution.keep or held.ratio > max(missed.ratio, 1.0):
            return found
        if _is_met(held.ratio, expected):  # what lies between is worth a few runs, also late

            def holds(more: frozenset[ir.Node]) -> bool:
                if not judge.affords(Untried.SETS):
                    return False
                measured = self._on_held_out(search, judge, best.solution.keep | more)
                return _is_met(measured.ratio, measured.unseen_bound)

            count = least_step(ladder, low, count, holds, tries=HALVINGS, worth=WORTH_HALVING)
            keep = best.solution.keep | ladder.nodes(count)
        return _with_more(found, keep, noise)

    def _with_hidden(
        self, found: Selection, feeds: Sequence[Feed], keep: frozenset[ir.Node], noise: NoiseModel
    ) -> Selection | None:
        """What no derivative tells of: the least that halving finds on the input that is missed the most, or all; None
        where that is not it."""
        search, judge = found.best.search, self.context.judge(found.best.search.sites, feeds)
        if self._on_held_out(search, judge, every := _free(search)).ratio > 1.0:
            return None
        one = self._of_one(search, _worst(feeds, judge.measure(search.assignment(keep))))
        hidden = one.find_hidden(keep, noise.ladder(), one.measure(keep), noise)
        sets = [each | hidden.needs for each in (found.best.solution.keep, keep)] if hidden else []
        for more in sets:
            held = self._on_held_out(search, judge, more)
            if _is_met(held.ratio, held.unseen_bound):
                return _with_more(found, more, noise)
        return _with_more(found, every, noise)

    def _with_choices(self, found: Selection, inputs: Inputs, *, first: bool) -> Selection | None:
        """With all that choices between near equals depend on, where that is enough and an input was missed before, or
        no runs are left: with fewer nodes, which are enough for the inputs searched, another is missed each time."""
        search, solution = found.best.search, found.best.solution
        free = _free(search)
        keep = solution.keep | deciding(free, search.sites.model, search.stepper)
        dear = len(keep) > DEAR * len(solution.keep)
        if (first or dear) and not search.judge.spent and self._affords_search(found.best):
            return None
        if len(keep) in (len(solution.keep), len(free)):
            return None
        held = self._on_held_out(search, self.context.judge(search.sites, inputs.held_out), keep)
        return _with_more(found, keep, solution.noise) if _is_met(held.ratio, held.unseen_bound) else None

    def _on_held_out(self, search: Search, judge: Judge, keep: frozenset[ir.Node]) -> Measured:
        """Those searched are asked, too, before it is taken: with other nodes in FP32 errors may no longer cancel."""
        self.notify(f"trying {counted(len(keep), 'FP32 node')} on held-out inputs")
        decision = search.assignment(keep)
        held = judge.measure(decision)
        if not _is_met(held.ratio, held.unseen_bound):
            return held
        searched = search.judge.measure(decision)
        return held if searched.ratio <= 1.0 else over_all([held, searched])

    def _of_worst(self, search: Search, feeds: Sequence[Feed], missed: Measured) -> NoiseModel:
        """What FP16 does to the input that is missed the most."""
        return noise_of_one(self._of_one(search, _worst(feeds, missed)).sets, self.notify)

    def _of_one(self, search: Search, feed: Feed) -> Search:
        """The same question of one input."""
        judge = self.context.judge(search.sites, [feed])
        return replace(search, judge=judge, label=digest(search.label, feed.id))

    def _selected(self, inputs: Inputs, target: float, start: frozenset[str]) -> Selection:
        selector = RepairSelector(
            self.model,
            self.context,
            inputs.search,
            self.choices,
            self.journal,
            target,
            self.notify,
            start,
            self.before,
            inputs.given.validation,
        )
        return selector.best(self.rules)

    def _decided(self, found: Selection, inputs: Inputs, notes: tuple[Note, ...]) -> Decided:
        best, solution, samples = found.best, found.best.solution, inputs.given
        formats = dict.fromkeys(solution.keep, Format.FP32)
        if self.allow_bf16:
            formats.update(self._use_bf16(best, samples))
        return Decided(
            best.model,
            best.search.sites,
            formats,
            solution.kept,
            samples,
            found.repairs,
            best.search.curve(solution.noise) if self.wants_curve else (),
            notes,
            found.diagnosis,
            inputs.variants or (),
            self._luck(best, samples),
        )

    def _expected(self, best: Attempt, held_out: Measured, inputs: Inputs) -> float:
        """The ratio to expect of inputs that were not given, from all that were."""
        return unseen_bound([best.solution.found, *([held_out] if inputs.given.origin == "given" else [])])

    def _luck(self, best: Attempt, given: Samples) -> float:
        """Of the inputs searched; where the report runs plain FP16 anyway, of all given."""
        search, solution = best.search, best.solution
        if given.origin != "given" or not solution.keep or not math.isfinite(solution.fp16.ratio):
            return 1.0
        held_out = given.validation if best.model is self.model else ()
        judges = [search.judge, *([self.context.judge(search.sites, held_out)] if held_out else [])]
        plain, found = (
            over_all([judge.measure(search.assignment(keep)) for judge in judges])
            for keep in (frozenset[ir.Node](), solution.keep)
        )
        return luck(solution, plain, found)

    def _use_bf16(self, best: Attempt, samples: Samples) -> dict[ir.Node, Format]:
        """Nodes that only lack range take BF16, as many as the tolerance bears, also of held-out inputs."""
        sites = best.search.sites
        bf16 = Sites(best.model, Format.BF16, self.choices)
        overflowing = [kept.node for kept in best.solution.kept if kept.why is Reason.OVERFLOW]
        able = [node for node in overflowing if why_not_bf16(sites, bf16, node) is None]
        held_out = self.context.judge(sites, samples.validation)
        allowed = max(1.0, held_out.measure(best.search.assignment(best.solution.keep)).ratio) if able else 1.0
        while able and best.search.judge.affords(Untried.SETS, 2):
            formats = {**dict.fromkeys(best.solution.keep, Format.FP32), **dict.fromkeys(able, Format.BF16)}
            self.notify(f"trying BF16 instead of FP32 for {counted(len(able), 'node')}")
            trial = Assignment.excepting(sites, formats, self.context.io)
            found = best.search.judge.measure(trial)
            if found.unseen_bound <= 1.0 and held_out.measure(trial).ratio <= allowed:
                return dict.fromkeys(able, Format.BF16)
            able = able[: len(able) // 2]
        return {}


def _worst(feeds: Sequence[Feed], measured: Measured) -> Feed:
    return feeds[max(range(len(feeds)), key=measured.ratios.__getitem__)]


def _free(search: Search) -> frozenset[ir.Node]:
    return frozenset(site.node for site in search.sites.free) - search.sites.forced


def _with_more(found: Selection, keep: frozenset[ir.Node], noise: NoiseModel | None) -> Selection:
    best, solution = found.best, found.best.solution
    fatal = noise.fatal if noise is not None else frozenset[ir.Node]()
    kept = (*solution.kept, *(kept_node(node, None, fatal) for node in keep - solution.keep))
    return replace(found, best=replace(best, solution=replace(solution, keep=keep, kept=kept, noise=noise)))


def _is_met(held: float, expected: float) -> bool:
    """Whether held-out inputs keep their distance from the tolerance, and those that were not given may be hoped to."""
    return held <= HELD_OUT_TARGET and expected <= 1.0


def why_not_bf16(sites: Sites, bf16: Sites, node: ir.Node) -> Note | None:
    """A node may take BF16 where it can, and where no slot differs from what FP16 may hold."""
    ours, theirs = sites.of[node], bf16.of[node]
    if (ours.inputs, ours.outputs) == (theirs.inputs, theirs.outputs):
        return ours.pinned
    return theirs.pinned or Note.of(NoteKind.NOT_ALSO_BF16)
