"""What is asked of the main job: all that the user chose, checked and completed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfwise.core.formats import Format
from halfwise.core.metrics import OutputMetric
from halfwise.core.notes import Note
from halfwise.core.targets import Target
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.ort import Device
from halfwise.model.inputs.rollout import Rollout
from halfwise.model.model import Model
from halfwise.precision.choices import Choices
from halfwise.precision.plan import Plan
from halfwise.repair import Rule
from halfwise.search.speed import Speed
from halfwise.verbs.fix.original import Original

__all__ = ["FixRequest"]


@dataclass(frozen=True, eq=False)
class FixRequest:
    """One question about one model. With `plan` nothing is searched: the plan is applied and verified."""

    model: Model
    inputs: Any
    out: Path | None
    tolerance: Sequence[str] | Tolerance
    metric: OutputMetric | None
    target: Target
    profile: str
    io_types: Format
    io_formats: Sequence[str]
    allow_bf16: bool
    rules: tuple[Rule, ...]
    choices: Choices
    plan: Plan | None
    judge_on_all: bool
    wants_curve: bool
    time_limit_s: float
    margin: float | None
    max_runs: float
    layers: Path | None
    original: Original | None
    device: Device
    rollout: Rollout | None
    notify: Callable[[str], None]
    speed: Speed | None
    notes: tuple[Note, ...] = ()  # what there is to say of the model as it was taken
