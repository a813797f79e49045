"""What the main job found and wrote, and the document it makes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from halfwise.backends.confirm import Confirmation
from halfwise.core.counting import Counts
from halfwise.core.english import documented
from halfwise.core.finding import Finding
from halfwise.core.formats import Format
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note
from halfwise.core.tolerance import Verdict
from halfwise.deploy.deploy_files import Delivery
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import Model
from halfwise.precision.plan import Plan, PlannedNode
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import TypedModel
from halfwise.search.diagnosis import Diagnosis
from halfwise.search.search import Point
from halfwise.verbs.fix.cost import Cost
from halfwise.verbs.fix.model_inputs import InputEffect
from halfwise.verbs.fix.policies import Compared, compare_policies

__all__ = ["Cost", "FixResult"]


@dataclass(frozen=True)
class FixResult:
    """Everything that `fix` found and wrote. Errors are measured on inputs that the search did not use."""

    model: Model
    plan: Plan
    sites: Sites
    fp16: Mapping[str, Metrics]
    fixed: Mapping[str, Metrics]
    floats: frozenset[str]  # the outputs that hold real numbers
    fp16_verdict: Verdict
    verdict: Verdict
    pinned: tuple[PlannedNode, ...]
    cost: Cost
    samples: Samples
    notes: tuple[Note | str, ...]
    curve: tuple[Point, ...]
    typed: TypedModel | None
    plan_path: Path | None
    delivery: Delivery = field(default_factory=Delivery)
    report: Path | None = None
    border: tuple[InputEffect, ...] = ()  # what inputs in FP16 do, where they are
    border_findings: tuple[Finding, ...] = ()
    ranges: Mapping[str, Counts] = field(default_factory=dict)  # of every FP32 tensor, over one search input
    diagnosis: Diagnosis | None = None  # None where all of it may be in FP16, and where a plan was given
    by_profile: Mapping[str, float] = field(default_factory=dict)  # the load under each that the target may meet
    confirmation: Confirmation | None = None  # what a real backend made of it, where one was asked

    @property
    def shares(self) -> Mapping[str, float]:
        """Each node's part of plain FP16's squared error, of the model as given; empty where it was not looked at."""
        return self.diagnosis.shares if self.diagnosis is not None else {}

    @property
    def met(self) -> bool:
        return self.verdict.met

    @property
    def refusal(self) -> str:
        """Why the target's own compiler takes no such model; empty where it does, or was not asked."""
        return self.delivery.refusal

    @cached_property
    def policies(self) -> tuple[Compared, ...]:
        """What other tools' lists would have kept in FP32 of the model as it was given."""
        return compare_policies(self.model, self.fp32_nodes, self.ranges)

    @property
    def good(self) -> bool:
        """Whether the answer is yes: the tolerance is kept, on the real backend too if one was asked, and the target's
        compiler does not refuse the model."""
        return self.met and not self.refusal and (self.confirmation is None or self.confirmation.met)

    @property
    def fp32_nodes(self) -> tuple[str, ...]:
        """Every node that stays out of FP16, in execution order: those the plan keeps and those that cannot narrow."""
        order = {site.name: site.index for site in self.sites.all}
        names = [node.name for node in (*self.plan.nodes, *self.pinned) if node.format is Format.FP32]
        return tuple(sorted(names, key=lambda name: order.get(name, 0)))

    def to_json(self) -> dict[str, Any]:
        document = {
            "schema": "halfwise.fix/1",
            "status": "met" if self.good else "not-met",
            "model": {
                "path": str(self.model.path) if self.model.path else "",
                "sha256": self.model.sha256,
                "nodes": self.model.stored_nodes,
                "compute_nodes": self.sites.compute_nodes,
            },
            "target": self.plan.target,
            "profile": self.plan.profile,
            "tolerance": self.plan.tolerance.to_json(),
            "error": {
                "fp16": {name: metrics.to_json() for name, metrics in self.fp16.items()},
                "fixed": {name: metrics.to_json() for name, metrics in self.fixed.items()},
            },
            "fp32_nodes": list(self.fp32_nodes),
            "repairs": [repair.to_json() for repair in self.plan.repairs],
            "cost": self.cost.to_json(),
            "artifacts": {
                "onnx": str(self.typed.path) if self.typed else None,
                "plan": str(self.plan_path) if self.plan_path else None,
                "report": str(self.report) if self.report else None,
                "trtexec": str(self.delivery.command) if self.delivery.command else None,
                "script": str(self.delivery.script) if self.delivery.script else None,
                **{what: str(path) for what, path in self.delivery.others.items()},
            },
            "inputs": {
                "origin": self.samples.origin,
                "search": len(self.samples.search),
                "validation": len(self.samples.validation),
            },
            "nodes": [node.document().to_json() for node in (*self.plan.nodes, *self.pinned)],
            **documented(self.notes),
            "policies": [compared.to_json() for compared in self.policies],
            **self.delivery.to_json(),
        }
        if self.border:
            document["io"] = {
                "inputs": [effect.to_json() for effect in self.border],
                "findings": [found.to_json() for found in self.border_findings],
            }
        if self.by_profile:
            document["profiles"] = {name: _json_number(load) for name, load in self.by_profile.items()}
        if self.curve:
            document["curve"] = [_point_json(point) for point in self.curve]
        if self.confirmation is not None:
            document["confirmation"] = self.confirmation.to_json()
        return document


def _point_json(point: Point) -> dict[str, Any]:
    return {
        "fp32_nodes": point.nodes,
        "cost": round(point.cost, 3),
        "predicted": _json_number(point.predicted),
        "load": _json_number(point.measured),
    }


def _json_number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)
