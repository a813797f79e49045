"""Judges a decision by running it: the error of an emulated model against the FP32 one, in units of the tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from halfwise.core.metrics import Metrics, OutputMetric, compare, is_float, worst
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator, carry_feeds
from halfwise.emulation.ort import Session
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.unseen_bound import bound_for_unseen

__all__ = ["Judge", "Measured", "Question"]

Array = NDArray[Any]
Feed = Mapping[str, Array]


@dataclass(frozen=True)
class Question:
    """What is asked: how large an error is too large. `inputs`: how many there are to ask it of, searched or not.

    `margin`: by how much a real error may exceed the emulated one, for what the profiles cannot follow.
    """

    tolerance: Tolerance
    metric: OutputMetric | None = None
    inputs: int = 0
    margin: float = 0.0


@dataclass(frozen=True)
class Measured:
    """The error over a set of samples. A ratio is error over allowed error: at most 1 is within the tolerance.

    `uncompared`: the outputs that are judged place by place, and that had another shape than in FP32.
    """

    ratios: tuple[float, ...]
    outputs: Mapping[str, Metrics] = field(default_factory=dict)
    user_metric: float | None = None
    question: Question = field(default_factory=lambda: Question(Tolerance.default()))
    uncompared: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        return max(self.ratios, default=0.0)

    @property
    def unseen_bound(self) -> float:
        """The ratio to expect of an unseen sample, where the profile is off by its margin."""
        return bound_for_unseen(self.ratios, self.question.inputs) * (1.0 + self.question.margin)

    @property
    def met(self) -> bool:
        return self.ratio <= 1.0


class Judge:
    """Runs decisions on one set of samples. `runs` counts model executions in passes over that set.

    `references` are the FP32 answers where they are known; else the model of `sites` gives them. Under `also` the same
    decision is run as other profiles compute it, and the worst of all counts.
    """

    def __init__(
        self,
        sites: Sites,
        emulator: Emulator,
        question: Question,
        feeds: Sequence[Feed],
        references: Sequence[Mapping[str, Array]] | None = None,
        also: Sequence[Emulator] = (),
    ) -> None:
        self.sites = sites
        self.emulator = emulator
        self.also = tuple(also)
        self.question = question
        self.feeds = tuple(carry_feeds(feed) for feed in feeds)
        self.runs = 0.0
        self._known: dict[object, dict[str, Measured]] = {}  # by decision, then by profile
        self._references = None if references is None else [dict(reference) for reference in references]

    @property
    def references(self) -> list[dict[str, Array]]:
        """The FP32 answers."""
        if self._references is None:
            session = self.emulator.session(Assignment(self.sites, {}))
            self._references = [self.run(session, feed) for feed in self.feeds]
        return self._references

    def measure(self, assignment: Assignment) -> Measured:
        """The error over all samples, the worst of the profiles."""
        seen = list(self.by_profile(assignment).values())
        if len(seen) == 1:
            return seen[0]
        users = [m.user_metric for m in seen if m.user_metric is not None]
        return Measured(
            tuple(max(ratios) for ratios in zip(*(m.ratios for m in seen), strict=True)),
            {name: worst([m.outputs[name] for m in seen]) for name in seen[0].outputs},
            max(users) if users else None,
            self.question,
            tuple(dict.fromkeys(name for m in seen for name in m.uncompared)),
        )

    def by_profile(self, assignment: Assignment) -> dict[str, Measured]:
        """The error as each profile sees it; what was measured before is not run again."""
        key = (frozenset(assignment.formats.items()), assignment.io)
        if key not in self._known:
            every = (self.emulator, *self.also)
            self._known[key] = {emulator.profile.name: self._under(emulator, assignment) for emulator in every}
        return self._known[key]

    def _under(self, emulator: Emulator, assignment: Assignment) -> Measured:
        references = self.references
        session = emulator.session(assignment)
        ratios, metrics, extra = [], [], []
        for feed, reference in zip(self.feeds, references, strict=True):
            outputs = self.run(session, feed)
            ratio, each, user = self.ratio_of(reference, outputs)
            ratios.append(ratio)
            metrics.append(each)
            if user is not None:
                extra.append(user)
        together = {name: worst([m[name] for m in metrics]) for name in references[0]}
        uncompared = self.question.tolerance.uncompared(together, _floats(references[0]))
        return Measured(tuple(ratios), together, max(extra) if extra else None, self.question, uncompared)

    def measure_one(self, assignment: Assignment, index: int) -> float:
        """The ratio on one sample only."""
        return max(
            self.ratio_of(self.references[index], self.run(emulator.session(assignment), self.feeds[index]))[0]
            for emulator in (self.emulator, *self.also)
        )

    def ratio_of(
        self, reference: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> tuple[float, dict[str, Metrics], float | None]:
        """One sample's error in units of the tolerance, the metrics behind it, and the user's own metric."""
        metrics = {name: compare(array, outputs[name]) for name, array in reference.items()}
        user = None
        if self.question.metric is not None and self.question.tolerance.uses_user_metric:
            user = float(self.question.metric(dict(reference), dict(outputs)))
        return self.question.tolerance.ratio(metrics, _floats(reference), user), metrics, user

    def run(self, session: Session, feed: Feed) -> dict[str, Array]:
        """One execution, counted."""
        self.runs += 1 / len(self.feeds)
        return session.run({name: feed[name] for name in session.input_names})


def _floats(answer: Mapping[str, Array]) -> frozenset[str]:
    return frozenset(name for name, array in answer.items() if is_float(array.dtype))
