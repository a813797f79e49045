"""What every attempt of one job shares: the emulator, the question, the FP32 answers, and the count of model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import Profile
from halfwise.emulation.stepper import Stepper
from halfwise.precision.sites import Sites
from halfwise.search.judge import Judge, Question

__all__ = ["EvaluationContext"]

Array = NDArray[Any]
Feed = Mapping[str, Array]


@dataclass
class EvaluationContext:
    """Makes judges that know the FP32 answers already, so that nothing is run twice."""

    emulator: Emulator
    stepper: Stepper
    question: Question
    io: Format
    answers: dict[int, dict[str, Array]]  # the FP32 outputs by the identity of the sample
    also: tuple[Emulator, ...] = ()  # the same under other profiles that the target may meet
    before: float = 0.0  # samples that were run before there was a context
    _judges: dict[tuple[Sites, tuple[int, ...]], Judge] = field(default_factory=dict)

    def judge(self, sites: Sites, feeds: Sequence[Feed]) -> Judge:
        """The judge of these samples; the same question gets the same judge, who remembers."""
        key = (sites, tuple(id(feed) for feed in feeds))
        if key not in self._judges:
            answers = [self.answers[id(feed)] for feed in feeds]
            self._judges[key] = Judge(sites, self.emulator, self.question, feeds, answers, self.also)
        return self._judges[key]

    def under(self, profile: Profile) -> EvaluationContext:
        """The same context where one more profile counts, instead of the one of that name; its judges begin anew."""
        others = tuple(each for each in self.also if each.profile.name != profile.name)
        emulator = Emulator(profile, self.emulator.device)
        return replace(self, also=(*others, emulator), before=self._passes(), _judges={})

    def add(self, sites: Sites, feeds: Sequence[Feed]) -> None:
        """Samples made on the way: run the model as given for its answers."""
        self.answers.update(
            (id(feed), answer)
            for feed, answer in zip(feeds, Judge(sites, self.emulator, self.question, feeds).references, strict=True)
        )
        self.before += len(feeds)

    def numbers(self, feeds: Sequence[Feed]) -> tuple[int, ...]:
        """Which samples these are: the same numbers when the same job is run again."""
        order = {key: index for index, key in enumerate(self.answers)}
        return tuple(order[id(feed)] for feed in feeds)

    def runs(self, samples: int) -> float:
        """Model executions so far, in passes over so many samples."""
        return self._passes() / samples

    def _passes(self) -> float:
        return self.before + sum(judge.runs * len(judge.feeds) for judge in self._judges.values())
