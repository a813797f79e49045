"""A budget for all model runs of a job: what is kept back for the verdict, and what is said where it was spent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.rollout import executions
from halfwise.model.inputs.samples import Samples
from halfwise.search.context import WALKED
from halfwise.search.held_out import HALVINGS, LARGER
from halfwise.search.run_counter import RunCounter
from halfwise.search.search import LEAST_SETS
from halfwise.search.walks import Walks

__all__ = ["MOST_BYTES_RUN", "budget_notes", "check_passes", "may_go_on", "plan_runs"]

MOST_BYTES_RUN = 1 << 29  # weights of a written model that is run: loading more takes longer than it tells
SIZES = 2  # inputs louder and quieter than those given
BOTH = 2  # judged with less rounding, too: plain FP16 and the answer
HELD_OUT = 3  # measured on held-out inputs: plain FP16, the answer, and one with more nodes where that misses


def plan_runs(counter: RunCounter, samples: Samples, profiles: int, walks: Walks) -> None:
    """`profiles` judge every decision, and the one with less rounding what is delivered."""
    searched, held_out = executions(samples.search), executions(samples.validation)
    verdict = HELD_OUT * profiles * held_out + BOTH * executions(samples.all) + SIZES * (1 + profiles)
    overflows = len(samples.search) - 1 + min(len(samples.search), WALKED)
    counter.over(searched)
    least = (1 + LEAST_SETS) * profiles * searched + 1 + walks.passes
    counter.plan(verdict, overflows, least, (LARGER + HALVINGS) * profiles * held_out)


def check_passes(samples: Samples) -> float:
    """What an answer is checked with: a look for overflows, and less rounding."""
    searched = executions(samples.search)
    return (2 * min(len(samples.search), WALKED) + executions(samples.all)) / max(searched, 1)


def may_go_on(counter: RunCounter, notes: Iterable[Note]) -> bool:
    """Whether something was left untried for want of runs."""
    return bool(counter.untried) or any(note.kind is NoteKind.RUNS_SPENT for note in notes)


def budget_notes(counter: RunCounter, runs: float) -> Iterator[Note]:
    """`runs` were taken."""
    asked = counter.budget
    if asked is None:
        return
    if counter.untried:
        yield Note.of(NoteKind.BEST_SO_FAR, asked=asked, untried=[each.value for each in counter.untried])
    if runs > asked:
        yield Note.of(NoteKind.RUNS_RAISED, asked=asked, runs=round(runs, 1))
