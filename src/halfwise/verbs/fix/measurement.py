"""What was measured of the answer of the main job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from halfwise.core.counting import Counts
from halfwise.core.finding import Finding
from halfwise.core.metrics import Metrics
from halfwise.core.tolerance import Verdict
from halfwise.search.diagnosis import Diagnosis
from halfwise.search.search import Point
from halfwise.verbs.fix.model_inputs import InputEffect
from halfwise.verbs.fix.promise import Promise
from halfwise.verbs.fix.rollout_errors import RolloutRecord

__all__ = ["FixMeasurement"]


@dataclass(frozen=True, eq=False)
class FixMeasurement:
    """Errors of plain FP16 and of the decision, on inputs that the search did not use."""

    fp16: Mapping[str, Metrics]
    fixed: Mapping[str, Metrics]
    floats: frozenset[str]  # the outputs that hold real numbers
    fp16_verdict: Verdict
    verdict: Verdict
    typed: Mapping[str, Metrics] = field(default_factory=dict)  # the file as it is typed, where it is
    typed_verdict: Verdict | None = None
    by_profile: Mapping[str, float] = field(default_factory=dict)  # the ratio under each that the target may meet
    expected: float = 0.0  # the ratio to expect of an unseen input, the margin on top
    inputs: tuple[InputEffect, ...] = ()  # what inputs in FP16 do, where they are
    input_findings: tuple[Finding, ...] = ()
    ranges: Mapping[str, Counts] = field(default_factory=dict)  # of every FP32 tensor, over one search input
    powers: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # how some of their values spread
    curve: tuple[Point, ...] = ()
    rollout: RolloutRecord | None = None  # the error step by step, where a rollout was asked for
    promise: Promise | None = None  # None where the tolerance is missed, and where all inputs were made up
    diagnosis: Diagnosis | None = None  # None where all of it may be in FP16, and where a plan was given
