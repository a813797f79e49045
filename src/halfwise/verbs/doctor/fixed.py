"""A model that `fix` wrote, beside its plan: it is judged as it is typed, by the model that it was made from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.measures.named import metric_named
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance_options import stated_bounds
from halfwise.model.fp32_model import holds_narrow
from halfwise.model.inputs.rollout import Rollout
from halfwise.model.model import Model
from halfwise.precision.plan import Plan
from halfwise.verbs.doctor.measured import Measured
from halfwise.verbs.verify import verify

__all__ = ["Fixed", "chosen", "fixed_of", "judged"]


@dataclass(frozen=True)
class Fixed:
    """`original` is where the model that it was made from lies, or lay."""

    path: Path
    original: Path
    plan: Plan

    @property
    def options(self) -> list[str]:
        """What the plan judges by, as on a command line."""
        bounds = [word for text in stated_bounds(self.plan.tolerance) for word in ("--tol", text)]
        measure = ["--metric", self.plan.tolerance.measure] if self.plan.tolerance.measure else []
        return [*bounds, *measure, *_stream(self.plan.rollout)]


def _stream(rollout: Rollout | None) -> list[str]:
    if rollout is None:
        return []
    pairs = [word for output, state in rollout.feedback for word in ("--feedback", f"{output}={state}")]
    return ["--rollout", str(rollout.steps), *pairs]


def chosen(models: Sequence[Model], plan: Plan | None) -> Model | None:
    """Of a model and what the plan made of it, the latter; None where the plan was made for none of these, as it is
    now."""
    if plan is None or not any(model.sha256 == plan.sha256 for model in models):
        return None
    return next((model for model in models if holds_narrow(model) and model.sha256 != plan.sha256), None)


def fixed_of(model: Model | None, plan: Plan | None, planned: Path | None) -> Fixed | None:
    """The original that was given, too, or by the name that the plan has for it, most often of a file one folder up."""
    if plan is None or model is None or model.path is None:
        return None
    if not holds_narrow(model) or plan.sha256 in ("", model.sha256):
        return None
    given, folder = Path(plan.model), model.path.parent
    places = (given, folder / given.name, Path(os.path.normpath(folder / "..")) / given.name)
    return Fixed(model.path, planned or next((place for place in places if place.is_file()), given), plan)


def judged(fixed: Fixed, inputs: Any, notify: Callable[[int, int], None]) -> Measured | Note:
    """Whether it keeps the tolerance of its plan on these inputs; or why that cannot be told."""
    if not fixed.original.is_file():
        return Note.of(NoteKind.NOT_RUN_HERE, why=f"{fixed.original}, which it was made from, is not here")
    rollout, measure = fixed.plan.rollout, fixed.plan.tolerance.measure
    found = verify(
        fixed.original,
        fixed.path,
        inputs,
        tolerance=stated_bounds(fixed.plan.tolerance),
        metric=metric_named(measure) if measure else None,
        rollout=None if rollout is None else rollout.steps,
        feedback=() if rollout is None else [f"{output}={state}" for output, state in rollout.feedback],
        notify=notify,
    )
    ratio = max(found.by_profile.values(), default=0.0)
    return Measured((_told(fixed, ratio, found.samples, found.met, found.verdict.because),), (), ratio)


def _told(fixed: Fixed, ratio: float, count: int, met: bool, because: Any) -> Finding:
    where, numbers = Where("model", str(fixed.path)), {"load": ratio}
    if met:
        return finding("HW621", where, Note.of(NoteKind.FIXED_KEEPS, count=count, ratio=ratio), numbers)
    return finding("HW622", where, Note.of(NoteKind.FIXED_MISSES, count=count, ratio=ratio, told=because), numbers)
