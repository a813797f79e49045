"""The error after each step of a rollout, and how it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np

from halfwise.core.document import Count, Number, Record, about
from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.rollout import Rollout
from halfwise.search.judge import Measured

__all__ = ["RolloutRecord", "growth_note", "rollout_record"]

GROWN = 2.0  # times the first error: what is told


class RolloutRecord(Record, frozen=True):
    """Errors in units of the allowed one, the worst trajectory after each step."""

    steps: Count
    feedback: Mapping[str, str]
    fp16: Sequence[Number]
    fixed: Sequence[Number]
    growth: Annotated[Number, about("Of the fixed model's error, as a factor a step.")]


def rollout_record(rollout: Rollout, fp16: Measured, fixed: Measured) -> RolloutRecord:
    after = _worst(fixed)
    return RolloutRecord(rollout.steps, dict(rollout.feedback), _worst(fp16), after, _growth(after))


def growth_note(found: RolloutRecord) -> Note | None:
    """None where the error after the last step is much like that after the first."""
    first, last = found.fixed[0], found.fixed[-1]
    if found.growth <= 1.0 or last <= GROWN * first:
        return None
    return Note.of(NoteKind.ROLLOUT_GROWS, growth=found.growth - 1.0, first=first, last=last, steps=found.steps)


def _worst(measured: Measured) -> list[float]:
    return [max(after) for after in zip(*measured.steps, strict=True)]


def _growth(after: Sequence[float]) -> float:
    """The factor a step that fits best; 1 where there are no two finite errors above zero."""
    points = [(index, value) for index, value in enumerate(after) if 0 < value < np.inf]
    if len(points) < 2:
        return 1.0
    steps, errors = np.array(points).T
    slope = float(np.polyfit(steps, np.log(errors), 1)[0])
    return float(np.exp(slope))
