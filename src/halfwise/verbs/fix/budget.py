"""The budget of model runs: what is kept back for the verdict, and what is said where it was spent."""

from __future__ import annotations

from collections.abc import Iterator

from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.rollout import executions
from halfwise.model.inputs.samples import Samples
from halfwise.search.context import WALKED
from halfwise.search.run_counter import RunCounter
from halfwise.search.search import LEAST_SETS
from halfwise.search.walks import Walks

__all__ = ["budget_notes", "plan_runs"]

SIZES = 2  # inputs louder and quieter than those given
HELD_OUT = 3  # measured on held-out inputs: plain FP16, the answer, and one with more nodes where that misses


def plan_runs(counter: RunCounter, samples: Samples, profiles: int, walks: Walks) -> None:
    """`profiles` judge every decision, and the one with less rounding what is delivered."""
    searched, held_out = executions(samples.search), executions(samples.validation)
    verdict = HELD_OUT * profiles * held_out + executions(samples.all) + SIZES * (1 + profiles)
    overflows = len(samples.search) - 1 + min(len(samples.search), WALKED)
    counter.over(searched)
    counter.plan(verdict, overflows, (1 + LEAST_SETS) * profiles * searched + 1 + walks.passes)


def budget_notes(counter: RunCounter, runs: float) -> Iterator[Note]:
    """`runs` were told."""
    asked = counter.most_passes
    if counter.untried:
        yield Note.of(NoteKind.RUNS_SPENT, runs=round(asked), untried=[each.value for each in counter.untried])
    if runs > asked:
        yield Note.of(NoteKind.RUNS_RAISED, asked=asked, runs=round(runs, 1))
