"""What is said of steps in a row: how many were judged, and how the error grows over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.rollout import Rollout, told_of

__all__ = ["growth", "growth_note", "rollout_notes"]

GROWN = 2.0  # times the first error: what is told
MATTERS = 0.01  # of the allowed error: below it growth is no news


def rollout_notes(rollout: Rollout, frames: int, ratios: Sequence[float]) -> Iterator[Note]:
    """`ratios`: error over allowed error of each step, trajectory by trajectory."""
    yield from told_of(rollout, len(ratios) // rollout.steps, frames)
    grows = growth_note([max(ratios[step :: rollout.steps]) for step in range(rollout.steps)])
    if grows is not None:
        yield grows


def growth_note(after: Sequence[float]) -> Note | None:
    """None where the error after the last step is much like that after the first, or small."""
    first, last, factor = after[0], after[-1], growth(after)
    if factor <= 1.0 or last <= max(GROWN * first, MATTERS):
        return None
    return Note.of(NoteKind.ROLLOUT_GROWS, growth=factor - 1.0, first=first, last=last, steps=len(after))


def growth(after: Sequence[float]) -> float:
    """The factor a step that fits best; 1 where there are no two finite errors above zero."""
    points = [(index, value) for index, value in enumerate(after) if 0 < value < np.inf]
    if len(points) < 2:
        return 1.0
    steps, errors = np.array(points).T
    slope = float(np.polyfit(steps, np.log(errors), 1)[0])
    return float(np.exp(slope))
