"""What the main job found and wrote, and the document it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from halfwise.backends.confirm import Confirmation
from halfwise.core.document import LEFT_OUT, Documented, Left
from halfwise.core.english import documented
from halfwise.core.english.outputs_told import outputs_told
from halfwise.core.formats import Format
from halfwise.core.metrics import Metrics
from halfwise.core.notes import QUANTISED_OTHERWISE, Note, NoteKind
from halfwise.core.summary import Summary
from halfwise.core.tolerance import Verdict
from halfwise.core.wording import counted, three_digits
from halfwise.deploy.deploy_files import DeployFiles
from halfwise.model.fp32_model import typed_nodes
from halfwise.model.inputs.feedback_words import feedback_words
from halfwise.model.inputs.rollout import Rollout
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import Model
from halfwise.model.patterns import KINDS
from halfwise.model.patterns.things import things
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import Plan
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import TypedModel
from halfwise.search.search import Point
from halfwise.verbs.fix.cost import Cost
from halfwise.verbs.fix.delivered import Delivered
from halfwise.verbs.fix.document import (
    ErrorRecord,
    FixDocument,
    FixedModel,
    InputsRecord,
    IoRecord,
    LatencyRecord,
    PointRecord,
    ThingRecord,
    TypedRecord,
)
from halfwise.verbs.fix.measurement import FixMeasurement
from halfwise.verbs.fix.parts import FixDecision, FixFiles
from halfwise.verbs.fix.policies import Compared, compare_policies
from halfwise.verbs.fix.promise import Promise
from halfwise.verbs.fix.standing import Denial, Standing, standing_of

__all__ = ["Cost", "FixResult"]


@dataclass(frozen=True, eq=False, repr=False)
class FixResult(Documented):
    """What `fix` decided, what it measured on inputs that the search did not use, and what it wrote."""

    decision: FixDecision
    measured: FixMeasurement
    files: FixFiles
    cost: Cost
    notes: tuple[Note, ...]
    delivered: Delivered | None = None  # what ONNX Runtime made of the written model; None where none was written
    confirmation: Confirmation | None = None  # what a real backend made of it, where one was asked
    latency: LatencyRecord | Left = LEFT_OUT  # predicted, where times or the GPU are known

    @property
    def model(self) -> Model:
        """The model as given."""
        return self.decision.model

    @property
    def plan(self) -> Plan:
        return self.decision.plan

    @property
    def sites(self) -> Sites:
        """The nodes of the repaired model."""
        return self.decision.sites

    @property
    def assignment(self) -> Assignment:
        """The format of every tensor of the repaired model."""
        formats = {self.sites.model.node_by_name[node.name]: node.format for node in self.plan.nodes}
        return Assignment.excepting(self.sites, formats, self.plan.io_types)

    @property
    def samples(self) -> Samples:
        return self.decision.samples

    @property
    def fp16(self) -> Mapping[str, Metrics]:
        """The error of plain FP16, by output."""
        return self.measured.fp16

    @property
    def fixed(self) -> Mapping[str, Metrics]:
        """The error of the fixed model, by output."""
        return self.measured.fixed

    @property
    def fp16_verdict(self) -> Verdict:
        return self.measured.fp16_verdict

    @property
    def verdict(self) -> Verdict:
        return self.measured.verdict

    @property
    def by_profile(self) -> Mapping[str, float]:
        """Error over allowed error under each profile that the target may meet."""
        return self.measured.by_profile

    @property
    def curve(self) -> tuple[Point, ...]:
        """Error against FP32 cost, where it was asked for."""
        return self.measured.curve

    @property
    def typed(self) -> TypedModel | None:
        """The model that was written."""
        return self.files.typed

    @property
    def plan_path(self) -> Path | None:
        return self.files.plan_path

    @property
    def report(self) -> Path | None:
        return self.files.report

    @property
    def deploy_files(self) -> DeployFiles:
        return self.files.deploy_files

    @property
    def shares(self) -> Mapping[str, float]:
        """Each node's part of plain FP16's squared error, of the model as given; empty where it was not looked at."""
        return self.measured.diagnosis.shares if self.measured.diagnosis is not None else {}

    @property
    def met(self) -> bool:
        return self.verdict.met

    @property
    def promise(self) -> Promise | None:
        """What "met" promises on other inputs; None where it is not met, and where all inputs were made up."""
        return self.measured.promise

    @property
    def refusal(self) -> str:
        """Why the target's own compiler takes no such model; empty where it does, or was not asked."""
        return self.deploy_files.refusal

    @cached_property
    def policies(self) -> tuple[Compared, ...]:
        """What other tools' lists would have kept in FP32 of the model as it was given."""
        return compare_policies(self.model, self.fp32_nodes, self.measured.ranges)

    @property
    def good(self) -> bool:
        """Whether the answer is yes: the tolerance is kept, by ONNX Runtime and on the real backend too where they were
        asked, and the target's compiler does not refuse the model."""
        return self.met and self.denial is None

    @property
    def denial(self) -> Denial | None:
        """Who says no besides the emulation, the gravest first; None where nobody does."""
        if self.refusal or any(note.kind in QUANTISED_OTHERWISE for note in self.notes):
            return Denial("Cannot be built", f"cannot be built for {self.plan.target}")
        if any(note.kind is NoteKind.REWRITING_MISSES for note in self.notes):
            return Denial("Differs from the file", "differs from the file's model in FP32 already")
        found = self.confirmation
        if found is not None and not found.met:
            does = "misses it" if found.outputs else "does not run"
            return Denial("Not confirmed", f"{does} on {found.record.title}")
        if self.delivered is not None and self.delivered.fails:
            return Denial("Not confirmed", "cannot be run by ONNX Runtime")
        if self.delivered is not None and self.delivered.refutes:
            return Denial("Not confirmed", "misses it as ONNX Runtime runs it")
        return None

    @property
    def standing(self) -> Standing:
        """What the answer is worth: a yes for inputs like those given, a yes for these inputs alone, or a no."""
        synthetic = self.samples.origin == "synthetic"
        return standing_of(
            met=self.met, denial=self.denial, synthetic=synthetic, promise=self.promise, notes=self.notes
        )

    @property
    def fp32_nodes(self) -> tuple[str, ...]:
        """Every node that stays out of FP16, in execution order: those the plan keeps and those that cannot narrow."""
        order = {site.name: site.index for site in self.sites.all}
        names = [node.name for node in (*self.plan.nodes, *self.decision.pinned) if node.format is Format.FP32]
        return tuple(sorted(names, key=lambda name: order.get(name, 0)))

    @property
    def rollout_words(self) -> tuple[str, ...]:
        """What puts the same question on a command line, where it was one of many steps."""
        asked = self.measured.rollout
        if asked is None:
            return ()
        states = feedback_words(Rollout(asked.steps, tuple(asked.feedback.items())), self.model.output_names)
        return ("--rollout", str(asked.steps), *(word for text in states for word in ("--feedback", text)))

    def summary(self) -> Summary:
        """The verdict, and each node that stays out of FP16."""
        name = self.model.path.name if self.model.path else "the model"
        standing = self.standing
        kept, total = len(self.plan.nodes), len(self.model.nodes)
        parts = [f"{name} {standing.told}{standing.stop} with {kept:,} of {counted(total, 'node')} out of FP16"]
        if self.plan.repairs:
            parts.append(counted(len(self.plan.repairs), "repair"))
        before, after = three_digits(self.fp16_verdict.ratio), three_digits(self.verdict.ratio)
        parts.append(f"error over allowed error {after} (plain FP16 {before})")
        if self.samples.origin == "synthetic":
            parts.append("SYNTHETIC INPUTS")
        if standing.here and self.promise is not None and self.promise.wanted:
            parts.append(f"{self.promise.wanted_words} would carry it to others")
        if self.report is not None:
            parts.append(f"report: {self.report}")
        shares = self.shares
        rows = tuple(
            (node.name, node.op, node.format.value, node.reason, shares.get(node.name)) for node in self.plan.nodes
        )
        columns = ("node", "operator", "format", "reason", "share of error")
        return Summary("; ".join(parts), columns, rows, self.good, standing.rank == "caution")

    def document(self) -> FixDocument:
        audit, files = self.deploy_files.audit, self.deploy_files
        return FixDocument(
            status="met" if self.good else "not-met",
            model=FixedModel(
                path=str(self.model.path) if self.model.path else "",
                sha256=self.model.sha256,
                nodes=len(self.model.nodes),
                compute_nodes=self.sites.compute_nodes,
                typed=_typed(self.model.given) if self.model.given is not None else LEFT_OUT,
            ),
            target=self.plan.target,
            profile=self.plan.profile,
            tolerance=self.plan.tolerance.to_json(),
            output_kinds=self.plan.tolerance.kinds,
            error=ErrorRecord(
                outputs_told(self.fp16), outputs_told(self.fixed), outputs_told(self.measured.typed) or LEFT_OUT
            ),
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
            nodes=[node.document() for node in (*self.plan.nodes, *self.decision.pinned)],
            things=_things(self.model, [node.name for node in self.plan.nodes]),
            **documented(self.notes),
            policies=[compared.document() for compared in self.policies],
            audit=files.audited(),
            audit_command=files.audit_command or None,
            refusal=files.refusal or None,
            violations=audit.violations if audit else (),
            advisories=[advisory.document() for advisory in files.advisories],
            io=IoRecord([each.document() for each in self.measured.inputs], self.measured.input_findings)
            if self.measured.inputs
            else LEFT_OUT,
            profiles=self.by_profile or LEFT_OUT,
            curve=[_point(point) for point in self.curve] or LEFT_OUT,
            delivered=LEFT_OUT if self.delivered is None else self.delivered.document(),
            promise=LEFT_OUT if self.promise is None else self.promise.document(),
            rollout=self.measured.rollout or LEFT_OUT,
            latency=self.latency,
            confirmation=LEFT_OUT if self.confirmation is None else self.confirmation.document(),
        )


def _typed(given: Model) -> TypedRecord:
    typed = typed_nodes(given)
    return TypedRecord(typed.nodes, **{fmt.value: count for fmt, count in typed.counts.items()})


def _point(point: Point) -> PointRecord:
    return PointRecord(point.nodes, round(point.cost, 3), point.predicted, point.measured)


def _things(model: Model, names: Sequence[str]) -> list[ThingRecord]:
    """What the nodes of these names are part of, in their order."""
    part = things(model) if names else {}
    found: dict[tuple[int, str], list[str]] = {}
    for name in names:
        if name in part:
            found.setdefault(part[name], []).append(name)
    return [ThingRecord(KINDS[kind], nodes) for (_, kind), nodes in found.items()]
