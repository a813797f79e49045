"""The error after each step of a rollout, and how it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from halfwise.core.document import Count, Number, Record, about
from halfwise.model.inputs.rollout import Rollout
from halfwise.model.inputs.rollout_growth import growth
from halfwise.search.judge import Measured

__all__ = ["RolloutRecord", "rollout_record"]


class RolloutRecord(Record, frozen=True):
    """Errors in units of the allowed one, the worst trajectory after each step."""

    steps: Count
    feedback: Mapping[str, str]
    fp16: Sequence[Number]
    fixed: Sequence[Number]
    growth: Annotated[Number, about("Of the fixed model's error, as a factor a step.")]


def rollout_record(rollout: Rollout, fp16: Measured, fixed: Measured) -> RolloutRecord:
    after = _worst(fixed)
    return RolloutRecord(rollout.steps, dict(rollout.feedback), _worst(fp16), after, growth(after))


def _worst(measured: Measured) -> list[float]:
    return [max(after) for after in zip(*measured.steps, strict=True)]
