"""Counts what a job runs, in model executions, and knows how many it may."""

from __future__ import annotations

import math
from enum import StrEnum

from halfwise.core.contents import tensors_in
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import Model

__all__ = ["KEPT_BACK", "MOST_LATER", "SAVING_RUNS", "SAVING_RUNS_LATER", "RunCounter", "Untried", "saving_runs"]

KEPT_BACK = 6  # passes for the verdict
SAVING_RUNS = 40  # passes over the search inputs that may go into saving FP32 nodes
SAVING_RUNS_SMALL = 100  # the same of a small model, whose runs take next to no time
SAVING_RUNS_LATER = 30  # of a search that heeds less rounding, or an engine's kernels: beyond what was run by then
SMALL_NODES = 48
SMALL_BYTES = 1 << 20  # of weights
SMALL_INPUTS = 1 << 16  # numbers in one sample
MOST_LATER = 2  # searches that heed less rounding and the engine's kernels, where the first answer misses with these
LATER_PASSES = 40  # kept back for each, of which checking the answer before takes some
LATER_SHARE = 0.25  # of the passes beyond `SAVING_RUNS`: most that is kept back for each
LARGER_SHARE = 0.125  # of the passes beyond `SAVING_RUNS`: most that is kept back for sets that held-out inputs need


class Untried(StrEnum):
    """What a budget of runs left undone."""

    SETS = "smaller sets of FP32 nodes"
    REVERTING = "reverting single nodes"
    REPAIRS = "repairs"
    VARIANTS = "inputs close to those given"
    ANEW = "a search with the inputs that were missed"
    SECOND = "a search with less rounding"
    RUNTIME = "nodes with which ONNX Runtime runs the written model right"
    CURVE = "points of the curve"
    CHOICES = "choices that plain FP16 takes otherwise"


class RunCounter:
    """Passed to whatever runs a model. One sample through the whole model counts 1, through half of its nodes 0.5.

    `saving` passes over the samples searched may go into saving FP32 nodes; what keeps the tolerance is looked for
    beyond them. A `budget` takes their place and is for all of a job: what the verdict takes is kept back from the
    start, and whatever may be left out asks first. It is never smaller than what the least answer takes.
    """

    def __init__(self, saving: float = math.inf, budget: float | None = None) -> None:
        self.samples = 0.0
        self.remembered = 0.0  # of these
        self.budget = budget
        self.most_passes = saving if budget is None else budget
        self.untried = dict[Untried, None]()
        self.found_at: float | None = None  # what had been run when an answer was found that is being checked
        self.hoped_at: float | None = None  # what will have been run when one is found, if all goes well
        self.looks = False
        self.later = MOST_LATER
        self.a_pass = 1
        self._extended = 0.0  # passes that may be spent in all, since a later search began
        self._own = 0.0  # run by this job, and not known to have been counted before
        self._verdict = self._overflows = self._answer = self._larger = 0.0

    def add(self, samples: float) -> None:
        self.samples += samples
        self._own += samples

    def remember(self, samples: float, until: float) -> None:
        """What an earlier job ran, which counts. By then it had counted `until`: what is beyond was run again here."""
        self.samples += samples
        self.remembered += samples
        self.again(self.samples - until)

    def again(self, samples: float) -> None:
        """So many of those that this job ran had been counted by an earlier one."""
        known = min(max(samples, 0.0), self._own)
        self._own -= known
        self.samples -= known

    def passes(self, samples: int) -> float:
        """The same in passes over so many samples."""
        return self.samples / max(samples, 1)

    def found(self) -> None:
        """An answer, which is still to be checked."""
        self.found_at, self.hoped_at = self.samples, None

    def check_more(self, samples: float) -> None:
        """Its check takes so many executions more than was foreseen."""
        if self.found_at is not None:
            self.found_at += samples

    def search(self) -> None:
        """It was not good enough."""
        self.found_at = None

    def search_later(self) -> None:
        """It was good enough for all but who judges from now on, too: what others spent is not spent for them. A job
        that may save with few runs stays short."""
        self.search()
        self._extended = self.passes(self.a_pass) + min(SAVING_RUNS_LATER, self.most_passes)

    def expect(self, later: int) -> None:
        """So many searches may come later than the one that begins."""
        self.later = later

    def hope(self, samples: float | None) -> None:
        """An answer after so many executions more; None where there is no such hope any more."""
        self.hoped_at = None if samples is None else self.samples + samples

    def look(self) -> None:
        """The narrow format alone is not enough: what is to stay in FP32, or to be repaired, is looked for."""
        self.looks = True

    @property
    def least(self) -> float:
        """The model executions that the least answer takes in which something is looked for, with its verdict."""
        return self._answer

    # -- what may go into saving nodes --------------------------------------------------------------------------------

    def most(self, samples: int) -> float:
        """The model executions that may be spent, where a pass is over so many samples."""
        return math.inf if self.budget is not None else max(self.saving - KEPT_BACK, 0.0) * samples

    @property
    def saving(self) -> float:
        """The passes after which a job ends that saves nodes, those of the verdict among them."""
        return max(self.most_passes, self._extended)

    @property
    def later_saving(self) -> float:
        """What a later search would add, as long as one may come."""
        return min(SAVING_RUNS_LATER, self.most_passes) if self.later and self.budget is None else 0.0

    def spent(self, samples: int, more: float = 0.0) -> bool:
        """Or would be, after so many executions more."""
        return self.samples + more >= self.most(samples)

    def within(self, samples: float) -> bool:
        """Whether a job with so many executions more takes no more passes than may go into saving nodes."""
        return self.samples + samples <= self.saving * self.a_pass

    # -- a budget for all ---------------------------------------------------------------------------------------------

    def plan(self, verdict: float, overflows: float, answer: float, larger: float = 0.0) -> None:
        """What the verdict takes, what it takes to look for overflows, and what the smallest search before it; and
        what a search leaves for larger sets, where held-out inputs miss its answer."""
        self._verdict, self._overflows, self._larger = verdict, overflows, larger
        self._answer = self.samples + answer + verdict + overflows

    def over(self, a_pass: int) -> None:
        """A pass is over so many samples."""
        self.a_pass = max(a_pass, 1)

    def judged(self, samples: float) -> None:
        """The verdict took so many executions. Nothing comes later but another, where what was written runs wrong."""
        self._verdict, self._overflows, self._larger, self.later = samples, 0.0, 0.0, 0

    def none_overflows(self) -> None:
        """No value comes near the limits of the format."""
        self._overflows = 0.0

    def free(self, samples: float, what: Untried) -> bool:
        """Whether so many executions may go into something; what may not is remembered."""
        if self.budget is None or samples <= self._left(self.budget):
            return True
        self.untried[what] = None
        return False

    def _left(self, budget: float) -> float:
        """The executions that may go into anything but the verdict."""
        most = max(budget * self.a_pass, self._answer)
        beyond = max(budget - SAVING_RUNS, 0.0) * self.a_pass
        larger = 0.0 if self.found_at is not None else min(self._larger, LARGER_SHARE * beyond)
        later = self.later * min(LATER_PASSES * self.a_pass, LATER_SHARE * beyond)
        return most - self._verdict - self._overflows - larger - later - self.samples


def saving_runs(model: Model, samples: Samples) -> float:
    """The passes that may go into saving FP32 nodes, where nobody gave a number."""
    few = len(model.nodes) <= SMALL_NODES and model.weight_bytes <= SMALL_BYTES
    sizes = [sum(array.size for array in tensors_in(feed.values())) for feed in samples.all]
    return SAVING_RUNS_SMALL if few and max(sizes, default=0) <= SMALL_INPUTS else SAVING_RUNS
