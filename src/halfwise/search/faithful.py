"""Whether a repaired model answers in FP32 what the given one does, as far as each rule promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.evaluation import sample_error
from halfwise.model.inputs.feed import Feed
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.choices import Choices
from halfwise.precision.sites import Sites
from halfwise.repair import Repair, Rule
from halfwise.search.attempt import RepairSet
from halfwise.search.context import EvaluationContext
from halfwise.search.departure import departure
from halfwise.search.references import References

__all__ = ["FAITHFUL_ON", "Faithfulness"]

FAITHFUL_ON = 2  # inputs on which a repair's FP32 answer is compared; the verdict compares it on all

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """Of one model's repairs, on a few inputs."""

    model: Model
    context: EvaluationContext
    choices: Choices
    feeds: Sequence[Feed]

    def holds(self, sites: Sites, repairs: RepairSet) -> bool:
        """Each rule moved the FP32 answer by no more than it states; what a lossy one does is no question of bounds.

        Measured rule by rule: each against the answers that it found, so that bounds add up and none hides another.
        """
        steps = _steps(repairs)
        tightest = min(map(_bound, repairs))
        if len(steps) > 1 and tightest > 0.0 and not any(rule.lossy for rule, _ in repairs):
            whole = self.context.judge(sites, self.feeds).measure(Assignment(sites, {}))
            if departure(whole.outputs, self._floats) <= tightest:
                return True
        made = [self._with(sites, steps, count) for count in range(1, len(steps) + 1)]
        known = self._walked(made) if _bound(steps[0][0]) > 0.0 else [{} for _ in made]
        before = self.context.references.own(self.feeds)
        for step, with_it, seen in zip(steps, made, known, strict=True):
            after = self.answers(with_it, step[0][0], seen)
            if after is None:
                return False
            kinds, pairs = self.context.question.tolerance.kinds, zip(before, after, strict=True)
            moved = max(departure(sample_error(a, b, kinds=kinds).outputs, self._floats) for a, b in pairs)
            if moved > max(map(_bound, step)):
                self.context.failures.unfaithful(step[0][0].name, moved)
                return False
            before = after
        return True

    def answers(
        self, sites: Sites, rule: Rule, known: Mapping[int, Mapping[str, Array]] | None = None
    ) -> list[dict[str, Array]] | None:
        """What a repaired model answers in FP32; None, and told, where it cannot be run."""
        try:
            return References(sites, self.context.emulator, self.context.counter, known=known).of(self.feeds)
        except InputError as error:
            self.context.failures.repair(rule.name, error)
            return None

    def _with(self, sites: Sites, steps: Sequence[RepairSet], count: int) -> Sites:
        """Of the model with the first steps; `sites` are of the one with all."""
        if count == len(steps):
            return sites
        so_far = tuple(entry for each in steps[:count] for entry in each)
        return self.context.sites(self.context.repaired(self.model, so_far)[0], self.choices)

    def _walked(self, made: Sequence[Sites]) -> list[Mapping[int, Mapping[str, Array]]]:
        """What walks told that looked at tensors: of the last a walk is asked for later in any case. Nothing where any
        of the others was not walked, as answers of other kernels are not the same bits."""
        *before, last = made
        if before and all(feed.id in self.context.answers(sites) for sites in before for feed in self.feeds):
            self.context.statistics(last, self.feeds)
            if all(feed.id in self.context.answers(last) for feed in self.feeds):
                return [self.context.answers(sites) for sites in made]
        return [{} for _ in made]

    @property
    def _floats(self) -> frozenset[str]:
        outputs = self.model.judged_values
        return frozenset(v.name or "" for v in outputs if v.dtype and v.dtype.is_floating_point())


def _bound(entry: tuple[Rule, Repair]) -> float:
    rule, repair = entry
    return max(rule.bound, repair.loses)


def _steps(repairs: RepairSet) -> list[RepairSet]:
    """Rule by rule; neighbours that promise the same bits are one step."""
    found: list[RepairSet] = []
    for entry in repairs:
        last = found[-1][-1] if found else None
        alike = last is not None and (last[0].id == entry[0].id or _bound(last) == _bound(entry) == 0.0)
        if alike:
            found[-1] = (*found[-1], entry)
        else:
            found.append((entry,))
    return found
