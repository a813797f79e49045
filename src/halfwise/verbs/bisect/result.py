"""What a bisection found, step by step, and the document it makes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfwise.backends.backend import BackendRecord
from halfwise.core.english import documented
from halfwise.core.metrics import ERRORS, LIKENESSES, Metrics
from halfwise.core.notes import Note
from halfwise.core.tolerance import Tolerance
from halfwise.verbs.bisect.culprits import Answer

__all__ = ["BisectResult", "Culprit", "Step", "metrics_of"]


@dataclass(frozen=True)
class Step:
    """One build: how many nodes were FP16 in it, of how many that were looked at, and what it said."""

    what: str  # "all FP16", "all FP32" or "group"
    fp16: int
    of: int
    answer: Answer
    load: float | None = None  # worst error over allowed error
    why: str = ""  # of a failed build
    resumed: bool = False

    def to_json(self) -> dict[str, Any]:
        load = self.load if self.load is None or math.isfinite(self.load) else str(self.load)
        return {"what": self.what, "fp16": self.fp16, "of": self.of, "answer": self.answer.value, "load": load,
                "why": self.why, "resumed": self.resumed}  # fmt: skip


@dataclass(frozen=True)
class Culprit:
    """A node that has to be FP32. `rank` is its place in the emulator's order of suspicion, from 1."""

    name: str
    op: str
    rank: int
    region: int  # culprits that feed each other share one

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "op": self.op, "rank": self.rank, "region": self.region}


@dataclass(frozen=True)
class BisectResult:
    """`ending`: "none" (all is well), "control" (wrong in FP32, too), "found", or "budget" (builds ran out)."""

    model: str
    backend: str
    ending: str
    culprits: tuple[Culprit, ...]
    unbuildable: tuple[str, ...]
    unproven: tuple[str, ...]
    kept: tuple[str, ...]  # FP32 from the beginning, by the plan
    sum: bool
    nodes: int
    steps: tuple[Step, ...]
    samples: int
    inputs: str
    tolerance: Tolerance | None
    baseline: Mapping[str, Metrics] = field(default_factory=dict)  # as the model (or the plan) was
    fixed: Mapping[str, Metrics] = field(default_factory=dict)  # with the culprits in FP32, measured on the backend
    emulated: Mapping[str, Metrics] = field(default_factory=dict)  # of the baseline, by the emulator
    floats: frozenset[str] = frozenset()
    record: BackendRecord | None = None
    onnx: Path | None = None
    plan: Path | None = None
    notes: tuple[Note | str, ...] = ()

    @property
    def good(self) -> bool:
        """Nothing is wrong as it is."""
        return self.ending == "none"

    @property
    def regions(self) -> tuple[tuple[str, ...], ...]:
        numbers = sorted({culprit.region for culprit in self.culprits})
        return tuple(tuple(c.name for c in self.culprits if c.region == number) for number in numbers)

    def builds(self) -> dict[str, int]:
        count = {answer.value: sum(step.answer is answer for step in self.steps) for answer in Answer}
        return {"total": len(self.steps), **count, "resumed": sum(step.resumed for step in self.steps)}

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "halfwise.bisect/1",
            "status": self.ending,
            "model": self.model,
            "backend": self.record.to_json() if self.record is not None else {"backend": self.backend},
            "tolerance": self.tolerance.to_json() if self.tolerance is not None else None,
            "inputs": {"origin": self.inputs, "samples": self.samples},
            "nodes": self.nodes,
            "culprits": [culprit.to_json() for culprit in self.culprits],
            "regions": [list(region) for region in self.regions],
            "sum": self.sum,
            "unbuildable": list(self.unbuildable),
            "unproven": list(self.unproven),
            "kept": list(self.kept),
            "builds": self.builds(),
            "steps": [step.to_json() for step in self.steps],
            "error": {
                "baseline": {name: metrics.to_json() for name, metrics in self.baseline.items()},
                "emulated": {name: metrics.to_json() for name, metrics in self.emulated.items()},
                "fixed": {name: metrics.to_json() for name, metrics in self.fixed.items()},
            },
            "artifacts": {"onnx": str(self.onnx) if self.onnx else None, "plan": str(self.plan) if self.plan else None},
            **documented(self.notes),
        }


def metrics_of(document: Mapping[str, Any]) -> Metrics:
    """Metrics from their own JSON."""
    numbers = {name: float(document[name]) for name in (*ERRORS, *LIKENESSES)}
    return Metrics(**numbers, nonfinite=int(document["nonfinite"]), note=str(document.get("note", "")))
