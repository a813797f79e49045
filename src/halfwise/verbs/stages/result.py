"""What running a model stage by stage showed: of each stage its error alone and in company, and who is to blame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfwise.core.english import documented
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note
from halfwise.core.tolerance import Tolerance, Verdict
from halfwise.precision.plan import Plan, PlannedNode

__all__ = ["GOOD", "INHERITS", "IN_COMPANY", "SPREADS", "WRONG", "Run", "Stage", "StagesResult", "Upto"]

GOOD = "good"
WRONG = "wrong by itself"
IN_COMPANY = "only in company"
SPREADS = "spreads"
INHERITS = "inherits"


@dataclass(frozen=True)
class Run:
    """The outputs of one way of running a stage, against FP32. `load`: the error over the allowed error."""

    outputs: Mapping[str, Metrics]
    verdict: Verdict

    @property
    def load(self) -> float:
        return self.verdict.ratio

    def to_json(self) -> dict[str, Any]:
        load = self.load if math.isfinite(self.load) else str(self.load)
        return {"load": load, "outputs": {name: metrics.to_json() for name, metrics in self.outputs.items()}}


@dataclass(frozen=True)
class Stage:
    """One stage. `alone`: in FP16 on FP32 inputs. `chained`: in FP16 on what the FP16 stages before it gave.
    `carried`: in FP32 on that, so what came in and nothing else.

    `finding`: "wrong by itself" (alone breaks the tolerance); "only in company" (alone and every input keep it, and the
    chained result does not); "spreads" (the same, and the stage would do so in FP32, too: what its inputs lack, it
    makes larger); "inherits" (an input was broken already); "good".
    """

    name: str
    nodes: int
    compute_nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    alone: Run
    chained: Run
    carried: Run
    finding: str
    culprits: tuple[PlannedNode, ...] = ()  # the nodes that have to be FP32 for the stage to be right by itself
    mended: float | None = None  # the load of the stage alone, with the culprits in FP32
    onnx: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "nodes": self.nodes,
            "compute_nodes": self.compute_nodes,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "finding": self.finding,
            "alone": self.alone.to_json(),
            "chained": self.chained.to_json(),
            "carried": self.carried.to_json(),
            "culprits": [node.document().to_json() for node in self.culprits],
            "mended_load": self.mended if self.mended is None or math.isfinite(self.mended) else str(self.mended),
            "onnx": str(self.onnx) if self.onnx else None,
        }


@dataclass(frozen=True)
class Upto:
    """The model with all stages up to one in FP16 and everything after it in FP32: its plan and its error."""

    stage: str
    plan: Plan
    whole: Run
    path: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "fp32_nodes": [node.name for node in self.plan.nodes],
            "met": self.whole.verdict.met,
            **self.whole.to_json(),
            "plan": str(self.path) if self.path else None,
        }


@dataclass(frozen=True)
class StagesResult:
    """Every stage in the order in which they run; `whole` is the whole model in FP16, against the tolerance."""

    stages: tuple[Stage, ...]
    whole: Run
    floats: frozenset[str]
    tolerance: Tolerance
    profile: str
    samples: int
    inputs: str  # where the samples come from
    notes: tuple[Note | str, ...] = ()
    upto: Upto | None = None
    model: str = ""

    @property
    def met(self) -> bool:
        return self.whole.verdict.met

    @property
    def wrong(self) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.stages if stage.finding == WRONG)

    @property
    def in_company(self) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.stages if stage.finding in (IN_COMPANY, SPREADS))

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "halfwise.stages/1",
            "status": "met" if self.met else "not-met",
            "model": self.model,
            "profile": self.profile,
            "tolerance": self.tolerance.to_json(),
            "inputs": {"origin": self.inputs, "samples": self.samples},
            "stages": [stage.to_json() for stage in self.stages],
            "outputs": {name: metrics.to_json() for name, metrics in self.whole.outputs.items()},
            "upto": self.upto.to_json() if self.upto else None,
            **documented(self.notes),
        }
