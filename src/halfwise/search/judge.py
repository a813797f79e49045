"""Judges a decision by running it: the error of an emulated model against the FP32 one, in units of the tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, repeat
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.errors import MissingBackend
from halfwise.core.evaluation import Evaluation, SampleError, evaluate, float_outputs, sample_error
from halfwise.core.float_sum import float_sum
from halfwise.core.metrics import Metrics, OutputMetric, worst, worst_seen
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.ort import Answer, AnySession
from halfwise.emulation.streamed import answered
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory, carried, ends_of
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.choices_read import read_by_choices
from halfwise.search.failures import Failures
from halfwise.search.run_counter import RunCounter, Untried
from halfwise.search.tensor_statistics import TensorStatistics
from halfwise.search.unseen_bound import bound_for_unseen

__all__ = ["Judge", "Measured", "Memory", "Question", "chance", "over_all", "unseen_bound", "worst_of"]

Array = NDArray[Any]
Outputs = Mapping[str, Array]


@dataclass(frozen=True)
class Memory:
    """What was seen of one model: the errors by emulator, decision and sample, one for each of its steps, what its
    tensors held in FP32, by sample, and the samples of which a search sees that anyway. `ratios`: of the sets of FP32
    nodes that were run, by sample. `answers`: in FP32, where a walk gave them besides."""

    errors: dict[object, tuple[SampleError, ...]] = field(default_factory=dict)
    ratios: dict[tuple[frozenset[ir.Node], int], float] = field(default_factory=dict)
    statistics: dict[int, TensorStatistics] = field(default_factory=dict)
    walked: dict[int, None] = field(default_factory=dict)
    answers: dict[int, Mapping[str, Array]] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """What is asked: how large an error is too large. `inputs`: how many there are to ask it of, searched or not.

    `margin`: by how much a real error may exceed the emulated one, for what the profiles cannot follow.
    """

    tolerance: Tolerance
    metric: OutputMetric | None = None
    inputs: int = 0
    margin: float = 0.0

    @property
    def own_metric(self) -> OutputMetric | None:
        """The user's function, where the tolerance bounds it."""
        return self.metric if self.tolerance.uses_user_metric else None


@dataclass(frozen=True)
class Measured:
    """The error over a set of samples. A ratio is error over allowed error: at most 1 is within the tolerance.

    `uncompared`: the outputs that are judged place by place, and that had another shape than in FP32. `steps`: the
    ratio after each step, of each sample that is a trajectory. `chances`: of the outputs that choose, the differences
    to expect over those that 95% of inputs bear. `smooth`: the ratios without such choices, where there are
    any.
    """

    ratios: tuple[float, ...]
    outputs: Mapping[str, Metrics] = field(default_factory=dict)
    user_metric: float | None = None
    question: Question = field(default_factory=lambda: Question(Tolerance.default()))
    uncompared: tuple[str, ...] = ()
    steps: tuple[tuple[float, ...], ...] = ()
    chances: tuple[float, ...] = ()
    smooth: tuple[float, ...] = ()

    @classmethod
    def of(cls, found: Evaluation, question: Question, lengths: Sequence[int] = ()) -> Measured:
        """`lengths`: how many steps in a row each sample has, where any has more than one."""
        if not lengths:
            seen = found.outputs, found.user_metric, question, found.uncompared
            chances = found.chances
            smooth = found.smooth if any(chances) else ()
            return cls(found.ratios, *seen, chances=chances, smooth=smooth)
        ratios = iter(found.ratios)
        steps = tuple(tuple(islice(ratios, length)) for length in lengths)
        worst_step = tuple(max(each) for each in steps)
        return cls(worst_step, found.outputs, found.user_metric, question, found.uncompared, steps, found.chances)

    @property
    def ratio(self) -> float:
        return max(self.ratios, default=0.0)

    @property
    def unseen_bound(self) -> float:
        """The ratio to expect of an unseen sample, where the profile is off by its margin."""
        return unseen_bound([self], self.question.inputs)

    @property
    def met(self) -> bool:
        return self.ratio <= 1.0


def unseen_bound(seen: Sequence[Measured], inputs: int = 0) -> float:
    """The ratio to expect of an unseen sample, where the profile is off by its margin. `inputs`: how many there are."""
    near = [ratio for each in seen for ratio in each.smooth or each.ratios]
    worst = max(each.ratio for each in seen)
    return max(bound_for_unseen(near, inputs), worst, chance(seen)) * (1.0 + seen[0].question.margin)


def chance(seen: Sequence[Measured]) -> float:
    """The share of other inputs whose choices change too much, over what a promise bears."""
    chances = [each for found in seen for each in found.chances]
    return float_sum(chances) / max(len(chances), 1)


def worst_of(seen: Sequence[Measured]) -> Measured:
    """The same samples as several profiles see them: the worst of each."""
    ratios = tuple(max(each) for each in zip(*(m.ratios for m in seen), strict=True))
    steps = tuple(tuple(map(max, *same)) for same in zip(*(m.steps for m in seen), strict=True) if len(seen) > 1)
    chances = tuple(max(each) for each in zip(*(m.chances for m in seen), strict=True))
    smooth = tuple(max(each) for each in zip(*(m.smooth or m.ratios for m in seen), strict=True))
    return seen[0] if len(seen) == 1 else _merged(ratios, steps, chances, seen, smooth, worst_seen)


def over_all(seen: Sequence[Measured]) -> Measured:
    """Several sets of samples as one profile sees them."""
    return (
        seen[0]
        if len(seen) == 1
        else _merged(
            tuple(ratio for m in seen for ratio in m.ratios),
            tuple(each for m in seen for each in m.steps),
            tuple(chance for m in seen for chance in m.chances),
            seen,
            tuple(ratio for m in seen for ratio in m.smooth or m.ratios),
            worst,
        )
    )


def _merged(
    ratios: tuple[float, ...],
    steps: tuple[tuple[float, ...], ...],
    chances: tuple[float, ...],
    seen: Sequence[Measured],
    smooth: tuple[float, ...],
    together: Callable[[Sequence[Metrics]], Metrics],
) -> Measured:
    users = [m.user_metric for m in seen if m.user_metric is not None]
    return Measured(
        ratios,
        {name: together([m.outputs[name] for m in seen]) for name in seen[0].outputs},
        max(users) if users else None,
        seen[0].question,
        tuple(dict.fromkeys(name for m in seen for name in m.uncompared)),
        steps,
        chances,
        smooth if any(chances) else (),
    )


class Judge:
    """Runs decisions on one set of samples, and counts that in `counter`.

    `references` are the FP32 answers where they are known; else the model of `sites` gives them. Under `also` the same
    decision is run as other profiles compute it, and the worst of all counts. A decision that cannot be run has an
    infinite error. `memory` is what judges of the same model share: no sample is run twice. A feed that is a
    trajectory is judged by the worst of its steps, each with the state that the decision itself came to;
    `trajectories` are FP32's answers to their steps.
    """

    def __init__(
        self,
        sites: Sites,
        emulator: Emulator,
        question: Question,
        feeds: Sequence[Mapping[str, Array]],
        references: Sequence[Outputs] | None = None,
        also: Sequence[Emulator] = (),
        counter: RunCounter | None = None,
        failures: Failures | None = None,
        memory: Memory | None = None,
        trajectories: Sequence[Sequence[Outputs]] = (),
    ) -> None:
        self.sites = sites
        self.emulator = emulator
        self.also = tuple(also)
        self.question = question
        self.feeds = tuple(widen_feeds(feed) for feed in feeds)
        self.ends = tuple(tuple(map(widen_feeds, ends_of(feed))) for feed in feeds)
        self.ids = tuple(feed.id if isinstance(feed, Feed) else index for index, feed in enumerate(feeds))
        self._rollout = next((feed.rollout for feed in feeds if isinstance(feed, Trajectory)), None)
        self._steps = [[widen_feeds(step) for step in each.steps] for each in feeds if isinstance(each, Trajectory)]
        self.trajectories = trajectories
        self.counter = counter or RunCounter()
        self.failures = failures or Failures()
        self.memory = memory or Memory()
        self._given = references

    @property
    def executions(self) -> int:
        """How often the model runs for one measurement."""
        return sum(map(len, self._steps)) or len(self.feeds)

    @cached_property
    def references(self) -> list[dict[str, Array]]:
        """The FP32 answers."""
        if self._given is not None:
            return [dict(reference) for reference in self._given]
        self.counter.add(len(self.feeds))
        return answered(self.emulator.session(Assignment(self.sites, {})), self.feeds)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The steps of each sample."""
        return tuple(map(len, self._steps)) or (1,) * len(self.feeds)

    def step(self, index: int, number: int) -> tuple[Mapping[str, Array], Outputs]:
        """One of them, with the state that FP32 had come to, and FP32's answer."""
        if self._steps:
            return self._steps[index][number], self.trajectories[index][number]
        return self.feeds[index], self.references[index]

    @property
    def spent(self) -> bool:
        """Whether the runs are used up that may go into saving nodes."""
        return self.counter.spent(self.executions)

    def affords(self, what: Untried, sets: int = 1, more: float = 0.0) -> bool:
        """Whether a budget leaves runs to measure so many sets, and `more`."""
        return self.counter.free(sets * self.executions * (1 + len(self.also)) + more, what)

    def measure(self, assignment: Assignment) -> Measured:
        """The error over all samples, the worst of the profiles."""
        return worst_of(list(self.by_profile(assignment).values()))

    def by_profile(self, assignment: Assignment) -> dict[str, Measured]:
        """The error as each profile sees it; what was measured before is not run again."""
        return {emulator.profile.name: self._under(emulator, assignment) for emulator in (self.emulator, *self.also)}

    def _under(self, emulator: Emulator, assignment: Assignment) -> Measured:
        errors = self._errors(emulator, assignment, range(len(self.feeds)))
        found = Evaluation(self.question.tolerance, self.floats, tuple(error for each in errors for error in each))
        return Measured.of(found, self.question, [len(each) for each in self._steps])

    def measure_one(self, assignment: Assignment, index: int) -> float:
        """The ratio on one sample only."""
        return max(
            self._ratio(error)
            for emulator in (self.emulator, *self.also)
            for each in self._errors(emulator, assignment, (index,))
            for error in each
        )

    def _errors(
        self, emulator: Emulator, assignment: Assignment, samples: Sequence[int]
    ) -> list[tuple[SampleError, ...]]:
        """Of these samples, step by step; those that were run before are not run again."""
        decided, known = (emulator, assignment.code, assignment.io), self.memory.errors
        keys = {index: (*decided, self.ids[index]) for index in samples}
        new = [index for index, key in keys.items() if key not in known]
        if new:
            right = [self.trajectories[index] if self._steps else (self.references[index],) for index in new]
            question, outputs = self.question, self._outputs(emulator, assignment, new)
            read_in = read_by_choices(assignment, question.tolerance.kinds)
            references = [answer for each in right for answer in each]
            errors = iter(evaluate(references, outputs, question.tolerance, question.metric, read_in).samples)
            for index, each in zip(new, right, strict=True):
                known[keys[index]] = tuple(islice(errors, len(each)))
        return [known[keys[index]] for index in samples]

    @cached_property
    def floats(self) -> frozenset[str]:
        """The outputs that hold real numbers."""
        return float_outputs(self.trajectories[0][0] if self._steps else self.references[0])

    def _outputs(
        self, emulator: Emulator, assignment: Assignment, samples: Iterable[int]
    ) -> Iterator[dict[str, Array] | None]:
        """What a decision answers, step by step where samples have steps; None where it cannot be run."""
        if self._rollout is not None:
            yield from self._step_by_step(emulator, assignment, samples)
            return
        feeds = [self.feeds[index] for index in samples]
        try:
            answers: Iterable[Answer] = emulator.session(assignment).answers(feeds)
        except MissingBackend:
            raise
        except Exception as error:
            answers = [error] * len(feeds)
        else:
            self.counter.add(len(feeds))
        for answer in answers:
            if isinstance(answer, Exception):
                self.failures.trial(answer)
            yield None if isinstance(answer, Exception) else answer

    def _step_by_step(
        self, emulator: Emulator, assignment: Assignment, samples: Iterable[int]
    ) -> Iterator[dict[str, Array] | None]:
        session: AnySession | None = None
        for index in samples:
            wanted = len(self._steps[index])
            given = 0
            try:
                session = session or emulator.session(assignment)
                for answer in self._runs(session, index):
                    given += 1
                    yield answer
            except MissingBackend:
                raise
            except Exception as error:
                self.failures.trial(error)
                yield from repeat(None, wanted - given)

    def _runs(self, session: AnySession, index: int) -> Iterator[dict[str, Array]]:
        assert self._rollout is not None
        for _, answer in carried(self._rollout, self._steps[index], lambda feed: self.run(session, feed)):
            yield dict(answer)

    def ratio_of(self, reference: Outputs, outputs: Outputs | None) -> float:
        """One sample's error in units of the tolerance."""
        return self._ratio(
            sample_error(reference, outputs, self.question.own_metric, kinds=self.question.tolerance.kinds)
        )

    def _ratio(self, found: SampleError) -> float:
        return self.question.tolerance.ratio(found.outputs, self.floats, found.user_metric)

    def run(self, session: AnySession, feed: Mapping[str, Array]) -> dict[str, Array]:
        """One execution, counted."""
        self.counter.add(1)
        return session.run({name: feed[name] for name in session.input_names})
