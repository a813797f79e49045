"""What every attempt of one job shares: the emulator, the question, the FP32 answers, and the count of model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from halfwise.emulate import Emulator
from halfwise.engine.stepper import Stepper
from halfwise.formats import Format
from halfwise.sites import Sites
from halfwise.solve.judge import Judge, Question

__all__ = ["Bench"]

Array = NDArray[Any]
Feed = Mapping[str, Array]


@dataclass
class Bench:
    """Makes judges that know the FP32 answers already, so that nothing is run twice."""

    emulator: Emulator
    stepper: Stepper
    question: Question
    io: Format
    answers: dict[int, dict[str, Array]]  # the FP32 outputs by the identity of the sample
    judges: list[Judge] = field(default_factory=list)

    def judge(self, sites: Sites, feeds: Sequence[Feed]) -> Judge:
        judge = Judge(sites, self.emulator, self.question, feeds, [self.answers[id(feed)] for feed in feeds])
        self.judges.append(judge)
        return judge

    def runs(self, samples: int) -> float:
        """Model executions so far, in passes over so many samples."""
        return sum(judge.runs * len(judge.feeds) for judge in self.judges) / samples
