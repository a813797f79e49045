"""What a kept tolerance promises on inputs that nobody gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.feed import Feed
from halfwise.precision.decision import Decision
from halfwise.search.held_out import Decided
from halfwise.search.judge import Measured, chance
from halfwise.search.jumps import jumping
from halfwise.search.overflows import may_overflow
from halfwise.search.run_counter import Untried
from halfwise.search.unseen_bound import bound_alone, inputs_wanted
from halfwise.search.variants import DOUBT, JUDGED, of_few, of_other_size, worth_variants
from halfwise.verbs.fix.candidate import Candidate
from halfwise.verbs.fix.document import PromiseRecord
from halfwise.verbs.fix.model_inputs import indexing
from halfwise.verbs.fix.prepare import Prepared
from halfwise.verbs.fix.turned_choices import turned_choices

__all__ = ["Promise", "promise_of"]

FARTHEST = 100.0  # times the allowed error: what is told of a made-up input that overflows
CLOSE = 0.5  # of the tolerance, expected of inputs not given: above it, a few inputs are not the last word


@dataclass(frozen=True)
class Promise:
    """The error, over the allowed one, that 19 of 20 similar inputs stay below, the search's margin on top."""

    bound: float
    wanted: int  # inputs that would carry the promise; 0 where those given do, and where no number would
    of_size: bool = False  # whether only inputs louder or quieter than those given may miss
    steps: int = 0  # of an input that is a trajectory
    turned: Note | None = None  # how many inputs miss since a choice inside turns
    by_luck: bool = False  # whether the inputs given keep the tolerance by luck, as the estimate of rounding says

    @property
    def carried(self) -> bool:
        return self.bound <= 1.0

    def notes(self) -> Iterator[Note]:
        if self.carried:
            return
        if self.turned is not None:
            yield self.turned
        elif self.by_luck:
            yield Note.of(NoteKind.UNSEEN_LUCK, bound=self.bound)
        elif self.of_size:
            yield Note.of(NoteKind.UNSEEN_SIZE, bound=self.bound)
        elif self.wanted and self.steps:
            yield Note.of(NoteKind.UNSEEN_TRAJECTORIES, bound=self.bound, wanted=self.wanted, steps=self.steps)
        elif self.wanted:
            yield Note.of(NoteKind.UNSEEN_MAY_MISS, bound=self.bound, wanted=self.wanted)
        else:
            yield Note.of(NoteKind.UNSEEN_SCATTERS, bound=self.bound)

    @property
    def wanted_words(self) -> str:
        """The inputs that would carry it: "about 8 inputs"; nothing where none would."""
        return f"about {self.wanted} {'trajectories' if self.steps else 'inputs'}" if self.wanted else ""

    def document(self) -> PromiseRecord:
        return PromiseRecord(self.carried, self.bound, self.wanted or None)


def promise_of(prepared: Prepared, candidate: Candidate, fixed: Measured, *, runs: bool = True) -> Promise | None:
    """None where the tolerance is missed, and where all inputs were made up: nothing is promised then.

    What the search measures is in units of what it allows; a promise is in those of what was stated.

    `runs`: other inputs, near those given and louder or quieter ones, are run where they may decide.
    """
    decided, decision, relaxed = candidate.decided, candidate.decision, prepared.relaxed
    if fixed.ratio * relaxed > 1.0 or decided.samples.origin == "synthetic":
        return None
    margin = prepared.context.question.margin
    given = {feed.id: ratio for feed, ratio in zip(decided.samples.all, fixed.smooth or fixed.ratios, strict=True)}
    seen, variants = [fixed], decided.variants
    alone = tuple(given.values())
    if runs and not variants and worth_variants(prepared.request.model, alone):
        variants = _near(prepared, decided, close=bound_alone(alone) * relaxed * (1.0 + margin) > CLOSE)
    if variants:
        judge = prepared.context.judge(decided.sites, variants)
        seen.append(judge.measure(decision.assignment))
        for feed, ratio in zip(variants, seen[1].smooth or seen[1].ratios, strict=True):
            if feed.source in given:
                given[feed.source] = max(given[feed.source], ratio)
    ratios = tuple(ratio * relaxed for ratio in given.values())
    bound = max(bound_alone(ratios), chance(seen) * relaxed) * (1.0 + margin)
    if bound > 1.0:
        stream = prepared.request.rollout
        return Promise(bound, inputs_wanted(ratios, margin), steps=0 if stream is None else stream.steps)
    lucky = bound * decided.luck
    if lucky > 1.0:
        return Promise(lucky, 0, by_luck=True)
    turned = turned_choices(prepared, decided, decision, variants) if runs else None
    if turned is not None:
        return Promise(min(turned.bound, FARTHEST), 0, turned=turned.told(FARTHEST))
    if not runs or (bound <= DOUBT and not may_overflow(decided.sites, candidate.statistics)):
        return Promise(lucky, 0)  # far from the tolerance, and no value is near the format's limits
    louder = _resized(prepared, decided, decision) * relaxed * (1.0 + margin)
    return Promise(max(lucky, louder), 0, of_size=louder > 1.0)


def _near(prepared: Prepared, decided: Decided, *, close: bool) -> tuple[Feed, ...]:
    """Inputs close to those given, where the search looked at none and there are runs left. Where a choice between near
    equals decides, or the promise comes close to the tolerance, only a stated budget ends the look."""
    counter = prepared.context.counter
    looked = max(JUDGED - len(decided.samples.all), 0) * (2 + len(prepared.context.also))
    wanted = close or counter.within(looked) or any(jumping(prepared.request.model))
    if not wanted or not counter.free(looked, Untried.VARIANTS):
        return ()
    return of_few(decided.samples, prepared.context.references)


def _resized(prepared: Prepared, decided: Decided, decision: Decision) -> float:
    """The ratio of inputs louder and quieter than those given; a measure of the user's is asked about none of them."""
    if prepared.context.question.own_metric is not None:
        return 0.0
    others = of_other_size(decided.samples, prepared.context.references, indexing(prepared.request.model))
    if not others:
        return 0.0
    return min(prepared.context.judge(decided.sites, others).measure(decision.assignment).ratio, FARTHEST)
