"""One trial of the promise: a fix with a few inputs, judged on fresh ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.promise.models import SUBJECTS
from halfwise import fix
from halfwise.core.errors import HalfwiseError
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import STRICT, WIDE
from halfwise.model.inputs.feed import Feed
from halfwise.precision.assignment import Assignment
from halfwise.search.judge import Judge, Question
from halfwise.verbs.fix.result import FixResult

__all__ = ["Outcome", "Trial", "outcome_of"]

FRESH = 64
SHARE = 0.05  # of fresh inputs that may miss


@dataclass(frozen=True)
class Trial:
    """A model, how many inputs are given, and which."""

    model: str
    given: int
    draw: int
    repairs: str

    @property
    def key(self) -> str:
        return f"{self.model} {self.given} {self.draw} {self.repairs}"


@dataclass(frozen=True)
class Outcome:
    met: bool
    warned: bool
    over: float  # share of fresh inputs
    worst: float  # ratio
    nodes: int
    runs: float
    seconds: float

    @property
    def broken(self) -> bool:
        return self.met and self.over > SHARE


def outcome_of(trial: Trial) -> Outcome:
    subject = SUBJECTS[trial.model]()
    fresh_rng, rng = np.random.default_rng(99), np.random.default_rng([trial.draw, trial.given])
    fresh = [Feed(10_000 + index, subject.draw(fresh_rng)) for index in range(FRESH)]
    inputs = [subject.draw(rng) for _ in range(trial.given)]
    started = time.perf_counter()
    try:
        result = fix(subject.model, inputs, tolerance=subject.tolerance, repairs=trial.repairs)
    except HalfwiseError as error:  # a refusal promises nothing
        print(f"{trial.key}: {error}", file=sys.stderr)
        return Outcome(False, True, 0.0, 0.0, 0, 0.0, time.perf_counter() - started)
    seconds = time.perf_counter() - started
    ratios = _ratios(result, fresh)
    warned = result.promise is not None and not result.promise.carried
    over, runs = float(np.mean(ratios > 1.0)), float(result.cost.model_runs)
    return Outcome(result.met, warned, over, float(ratios.max()), len(result.fp32_nodes), runs, seconds)


def _ratios(result: FixResult, fresh: Sequence[Feed]) -> NDArray[np.float64]:
    """On each fresh input the worse of strict and wide, by the same tolerance."""
    formats = {result.sites.model.node_by_name[node.name]: node.format for node in result.plan.nodes}
    decision = Assignment.excepting(result.sites, formats, result.plan.io_types)
    strict = Emulator(STRICT)
    judge = Judge(result.sites, strict, Question(result.plan.tolerance), fresh, also=(strict.under(WIDE),))
    return np.array(judge.measure(decision).ratios)
