"""What is asked of the main job: all that the user chose, checked and completed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfwise.compiler.compiled import TIME_LIMIT_S
from halfwise.core.formats import Format
from halfwise.core.metrics import OutputMetric
from halfwise.core.notes import Note
from halfwise.core.targets import DEFAULT_TARGET, Target
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
    out: Path | None = None
    tolerance: Sequence[str] | Tolerance = ()
    metric: OutputMetric | None = None
    target: Target = DEFAULT_TARGET
    profile: str = DEFAULT_TARGET.profile
    io_types: Format = Format.FP32
    io_formats: Sequence[str] = ()
    allow_bf16: bool = False
    rules: tuple[Rule, ...] = ()
    choices: Choices = field(default_factory=Choices)
    plan: Plan | None = None
    judge_on_all: bool = False
    wants_curve: bool = False
    time_limit_s: float = TIME_LIMIT_S
    margin: float | None = None
    max_runs: float | None = None  # of the whole job
    layers: Path | None = None
    original: Original | None = None
    device: Device = "cpu"
    rollout: Rollout | None = None
    notify: Callable[[str], None] = lambda _: None
    speed: Speed | None = None
    notes: tuple[Note, ...] = ()  # what there is to say of the model as it was taken
    stored: Model | None = None  # as the file has it, where the target's parser does not read that
    saving_runs: float | None = None  # where no number bounds the whole job: passes that may go into saving FP32 nodes
