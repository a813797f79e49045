"""What the main job found and wrote, and the document it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from halfwise.backends.confirm import Confirmation
from halfwise.core.counting import Counts
from halfwise.core.document import LEFT_OUT, Documented
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
from halfwise.verbs.fix.document import (
    ErrorRecord,
    FixDocument,
    FixedModel,
    InputsRecord,
    IoRecord,
    PointRecord,
)
from halfwise.verbs.fix.model_inputs import InputEffect
from halfwise.verbs.fix.policies import Compared, compare_policies

__all__ = ["Cost", "FixResult"]


@dataclass(frozen=True)
class FixResult(Documented):
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
    notes: tuple[Note, ...]
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

    def document(self) -> FixDocument:
        audit, files = self.delivery.audit, self.delivery
        return FixDocument(
            status="met" if self.good else "not-met",
            model=FixedModel(
                path=str(self.model.path) if self.model.path else "",
                sha256=self.model.sha256,
                nodes=self.model.stored_nodes,
                compute_nodes=self.sites.compute_nodes,
            ),
            target=self.plan.target,
            profile=self.plan.profile,
            tolerance=self.plan.tolerance.to_json(),
            error=ErrorRecord(self.fp16, self.fixed),
            fp32_nodes=self.fp32_nodes,
            repairs=self.plan.repairs,
            cost=self.cost.document(),
            artifacts={
                "onnx": str(self.typed.path) if self.typed else None,
                "plan": str(self.plan_path) if self.plan_path else None,
                "report": str(self.report) if self.report else None,
                "trtexec": str(files.command) if files.command else None,
                "script": str(files.script) if files.script else None,
                **{what: str(path) for what, path in files.others.items()},
            },
            inputs=InputsRecord(self.samples.origin, len(self.samples.search), len(self.samples.validation)),
            nodes=[node.document() for node in (*self.plan.nodes, *self.pinned)],
            **documented(self.notes),
            policies=[compared.document() for compared in self.policies],
            audit=files.audited(),
            audit_command=files.audit_command or None,
            refusal=files.refusal or None,
            violations=audit.violations if audit else (),
            advisories=[advisory.document() for advisory in files.advisories],
            io=IoRecord([each.document() for each in self.border], self.border_findings) if self.border else LEFT_OUT,
            profiles=self.by_profile or LEFT_OUT,
            curve=[_point(point) for point in self.curve] or LEFT_OUT,
            confirmation=LEFT_OUT if self.confirmation is None else self.confirmation.document(),
        )


def _point(point: Point) -> PointRecord:
    return PointRecord(point.nodes, round(point.cost, 3), point.predicted, point.measured)
