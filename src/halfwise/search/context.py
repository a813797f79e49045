"""What every attempt of one job shares: the emulators, the question, the FP32 answers, and the counter of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import Profile
from halfwise.emulation.stepper import Stepper
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.failures import Failures
from halfwise.search.judge import Judge, Measured, Memory, Question, over_all
from halfwise.search.references import References
from halfwise.search.run_counter import RunCounter

__all__ = ["EvaluationContext"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class EvaluationContext:
    """Makes judges that know the FP32 answers already, so that nothing is run twice."""

    emulator: Emulator
    stepper: Stepper
    question: Question
    io: Format
    references: References
    counter: RunCounter
    also: tuple[Emulator, ...] = ()  # the same under other profiles that the target may meet
    failures: Failures = field(default_factory=Failures)
    _judges: dict[tuple[Sites, tuple[int, ...]], Judge] = field(default_factory=dict)
    _measured: dict[tuple[Model, Format, tuple[int, ...]], Memory] = field(default_factory=dict)

    def judge(self, sites: Sites, feeds: Sequence[Feed]) -> Judge:
        """The judge of these samples; the same question gets the same judge, who remembers."""
        given = tuple(feed.id for feed in feeds)
        key = (sites, given)
        if key not in self._judges:
            answers = self.references.of(feeds)
            known = self._measured.setdefault((sites.model, sites.fmt, given), {})
            self._judges[key] = Judge(
                sites, self.emulator, self.question, feeds, answers, self.also, self.counter, self.failures, known
            )
        return self._judges[key]

    def over_all(self, sites: Sites, samples: Samples, decision: Assignment) -> dict[str, Measured]:
        """The error over all samples, searched and held out, as each profile sees it."""
        searched = [] if set(samples.search) <= set(samples.validation) else [samples.search]
        judges = [self.judge(sites, feeds) for feeds in (*searched, samples.validation) if feeds]
        seen = [judge.by_profile(decision) for judge in judges]
        return {name: over_all([each[name] for each in seen]) for name in seen[0]}

    def under(self, profile: Profile) -> EvaluationContext:
        """The same context where one more profile counts, instead of the one of that name."""
        others = tuple(each for each in self.also if each.profile.name != profile.name)
        return replace(self, also=(*others, self.emulator.under(profile)), _judges={})
