"""The gate: does a committed plan still hold for this model? Each question is one check that passes or fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from halfwise.compiler.audit import Audit, Violation, audit
from halfwise.compiler.audit_findings import audit_findings, what_ran
from halfwise.compiler.buildlog import read_log
from halfwise.compiler.layers import layers_from_log, looks_like_json, read_layers
from halfwise.compiler.layers_model import nodes_of_model
from halfwise.core.document import LEFT_OUT, Documented, read
from halfwise.core.english import documented, said, say_all
from halfwise.core.english.finding import finding
from halfwise.core.english.outputs_told import outputs_told
from halfwise.core.errors import InputError
from halfwise.core.files.identify import not_wanted
from halfwise.core.finding import Finding, Where
from halfwise.core.json_text import read_json
from halfwise.core.measures.named import with_measure
from halfwise.core.metrics import OutputMetric
from halfwise.core.notes import Note, NoteKind
from halfwise.core.summary import Rank, Summary
from halfwise.model.fp32_model import fp32_model
from halfwise.model.inputs.rollout import Rollout, rollout_of
from halfwise.model.model import Model, load, load_to_run
from halfwise.precision.plan import Plan, read_plan
from halfwise.repair import PLANNED, reapplied
from halfwise.verbs.fix.arguments import target_of
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.own_operators import read_by
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.standing import caution_of
from halfwise.verbs.gate_document import Change, CheckRecord, GatedModel, GateDocument, Question, Status
from halfwise.verbs.scan import scan
from halfwise.verbs.scan.document import ScanDocument

__all__ = ["Change", "Check", "Gate", "fits", "gate", "read_baseline"]

FindingKey = tuple[str, str, str, str]  # rule, severity, kind and name of its place

SCAN = "halfwise.scan/1"


@dataclass(frozen=True)
class Check:
    """One question and its answer; `rule` is the finding that a failure makes."""

    id: Question
    status: Status
    note: Note
    also: tuple[Note, ...] = ()  # what else the same line says
    details: tuple[Note, ...] = ()
    rule: str = ""

    @property
    def message(self) -> str:
        return said((self.note, *self.also))

    def document(self) -> CheckRecord:
        return CheckRecord(self.id, self.status, self.message, say_all(self.details), (self.note, *self.also))


_NOT_APPLIED = Check("tolerance", "skip", Note.of(NoteKind.NOT_MEASURED, why=Note.of(NoteKind.PLAN_NOT_APPLIED)))


@dataclass(frozen=True, repr=False)
class Gate(Documented):
    """The answer. `change` is what became of the model since the plan: nothing, other weights, another graph; "any"
    where the plan was made for no model in particular."""

    plan: str
    model: Model
    change: Change
    checks: tuple[Check, ...]
    result: FixResult | None  # the plan applied to this model, where it could be
    audit: Audit | None
    findings: tuple[Finding, ...]  # that the baseline does not have
    notes: tuple[Note, ...] = ()

    @property
    def holds(self) -> bool:
        return all(check.status != "fail" for check in self.checks)

    @property
    def rank(self) -> Rank:
        """What the answer is worth: where the plan holds, what its tolerance's verdict is."""
        if not self.holds:
            return "missed"
        return "met" if self.result is None else self.result.standing.rank

    @property
    def caution(self) -> Note | None:
        """Why the tolerance is kept with a caution; None where it is not kept, or without one."""
        if self.rank != "caution":
            return None
        return caution_of(self.notes) or next((note for note in self.notes if note.kind is NoteKind.SYNTHETIC), None)

    @property
    def told(self) -> str:
        """After the name of the plan."""
        if not self.holds:
            return "does not hold"
        return f"holds{self.result.standing.here}" if self.result is not None else "holds"

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Everything that speaks against the plan, as findings."""
        where = Where("model", str(self.model.path or ""))
        failed = [check for check in self.checks if check.status == "fail" and check.rule]
        return (
            *(finding(check.rule, where, check.note, {"details": say_all(check.details)}) for check in failed),
            *(audit_findings(self.audit) if self.audit is not None else ()),
            *self.findings,
        )

    def summary(self) -> Summary:
        """Whether the plan holds, and each check."""
        rows = tuple((check.id, check.status, check.message) for check in self.checks)
        headline = f"{self.plan} {self.told} for {self.model.path or 'the model'}"
        return Summary(headline, ("check", "status", "message"), rows, self.holds, self.rank == "caution")

    def document(self) -> GateDocument:
        result = self.result
        return GateDocument(
            status="holds" if self.holds else "broken",
            plan=self.plan,
            model=GatedModel(str(self.model.path or ""), self.model.sha256, len(self.model.nodes), self.change),
            checks=[check.document() for check in self.checks],
            tolerance=result.plan.tolerance.to_json() if result else None,
            error=outputs_told(result.fixed) if result else {},
            violations=self.audit.violations if self.audit is not None else (),
            findings=self.findings,
            promise=LEFT_OUT if result is None or result.promise is None else result.promise.document(),
            **documented(self.notes),
        )


def gate(
    plan: str | Path | Plan,
    model: str | Path | onnx.ModelProto | Model,
    inputs: str | Path | Iterable[Any] | None = None,
    *,
    metric: OutputMetric | str | None = None,
    baseline: str | Path | None = None,
    engine: str | Path | None = None,
    reference: str | Path | onnx.ModelProto | Model | None = None,
    rollout: int | None = None,
    feedback: str | Sequence[str] = (),
    profile: str | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> Gate:
    """Check a plan against a model that may have been trained again since.

    Nothing is searched here, so that the tolerance has to hold on all inputs. `baseline` is what `scan --json` said of
    the model that the plan was made for; `engine` is the layer list or the verbose log of the engine that was built.
    `reference` is the FP32 original of a typed model, as `fix` takes it.
    A plan that was judged over many steps is judged so again; `rollout` and `feedback` state others, as in `fix`.
    `profile` judges instead of the plan's own, as what `prove` learned since.
    Without an engine the plan is audited where TensorRT-RTX stands for its target's compiler, as `fix` does.
    """
    _, metric = with_measure((), metric)
    known = None if baseline is None else read_baseline(baseline)
    name = "the plan" if isinstance(plan, Plan) else str(plan)
    stated = plan if isinstance(plan, Plan) else read_plan(plan)
    model = fp32_model(model if isinstance(model, Model) else load_to_run(model))
    read = _as_read(stated, model)
    change, fingerprint = _fingerprint(stated, read)
    applied = _applies(stated, read)
    result, tolerance = None, _NOT_APPLIED
    if applied.status != "fail":
        reference = reference if reference is None or isinstance(reference, Model) else load(reference)
        judged = partial(fix, model, inputs, judge_on_all=True, metric=metric, profile=profile, notify=notify)
        here = _of_this_model(stated, model, change, reference, rollout_of(rollout, feedback, model.output_names))
        try:
            result = judged(plan=here, reference=reference)
            tolerance = _tolerance(result)
        except InputError as error:
            if change != "graph":
                raise
            # The inputs are another graph's.
            tolerance = Check("tolerance", "skip", Note.of(NoteKind.NOT_MEASURED, why=str(error)))
    audited, violations = _violations(stated, model, result, Path(engine) if engine is not None else None)
    notify("scanning")
    new, findings = _findings(model, known, baseline)
    return Gate(
        name,
        model,
        change,
        (fingerprint, applied, tolerance, violations, findings),
        result,
        audited,
        new,
        result.notes if result is not None else (),
    )


def _of_this_model(plan: Plan, model: Model, change: Change, reference: Model | None, rollout: Rollout | None) -> Plan:
    """The fingerprint has been answered for: this model is the one to apply the plan to. A plan that was made for
    other weights names none, so that errors are relative to this model's own outputs."""
    sha256 = model.sha256 if change == "none" else ""
    here = replace(plan, sha256=sha256, data_sha256=model.data_sha256, rollout=rollout or plan.rollout)
    return here if reference is None else replace(here, reference_sha256=reference.sha256)


def fits(plan: Plan, model: Model) -> tuple[Check, Check]:
    """Whether the plan can be applied to the model at all: what is known without running it."""
    read = _as_read(plan, model)
    return _fingerprint(plan, read)[1], _applies(plan, read)


def _as_read(plan: Plan, model: Model) -> Model:
    """As the plan's target reads it, which is what a plan is about."""
    return read_by(target_of(None, plan), model)[0]


def _fingerprint(plan: Plan, model: Model) -> tuple[Change, Check]:
    def check(status: Status, note: Note) -> Check:
        return Check("fingerprint", status, note, rule="HW901")

    if not plan.sha256:
        return "any", check("pass", Note.of(NoteKind.PLAN_OF_ANY))
    same_file = plan.sha256 == model.sha256
    if same_file and (not plan.data_sha256 or model.has_data(plan.data_sha256)):
        return "none", check("pass", Note.of(NoteKind.PLAN_OF_THIS))
    if plan.has_graph_of(model):
        return "weights", check("pass", Note.of(NoteKind.PLAN_OF_OTHER_WEIGHTS))
    if plan.node_count != model.stored_nodes:
        other = Note.of(NoteKind.PLAN_OF_OTHER_SIZE, planned=plan.node_count, nodes=model.stored_nodes)
        return "graph", check("fail", other)
    if plan.graph_sha256:
        return "graph", check("fail", Note.of(NoteKind.PLAN_OF_OTHER_GRAPH))
    return "weights", check("pass", Note.of(NoteKind.PLAN_OF_OTHER_FILE))


def _applies(plan: Plan, model: Model) -> Check:
    """Its repairs fit, its nodes are there and are what they were, the outputs that its tolerance names exist."""

    def fail(note: Note, details: Iterable[Note] = ()) -> Check:
        return Check("nodes", "fail", note, details=tuple(details), rule="HW902")

    known = {rule.id for rule in PLANNED}
    unknown = next((entry.rule for entry in plan.repairs if entry.rule not in known), None)
    if unknown is not None:
        told = f"the plan holds the repair {unknown!r}, which this version does not know"
        raise InputError(f"{told}: use the version that wrote it, or run `halfwise fix` again")
    try:
        plan.tolerance.check_outputs(model.output_names)
        nodes = reapplied(model, plan.repairs).node_by_name
    except InputError as error:
        return fail(Note.of(NoteKind.PLAN_REFUSED, why=str(error)))
    planned = len(plan.nodes)
    missing = [node.name for node in plan.nodes if node.name not in nodes]
    if missing:
        gone = (Note.of(NoteKind.NODE_MISSING, name) for name in missing)
        return fail(Note.of(NoteKind.NODES_MISSING, missing=len(missing), planned=planned), gone)
    changed = [
        Note.of(NoteKind.OPERATOR_CHANGED, node.name, was=node.op, now=nodes[node.name].op_type)
        for node in plan.nodes
        if node.op and node.op != nodes[node.name].op_type
    ]
    if changed:
        return fail(Note.of(NoteKind.NODES_CHANGED, changed=len(changed), planned=planned), changed)
    there = [Note.of(NoteKind.NODES_FIT, count=planned)] if planned else []
    there += [Note.of(NoteKind.REPAIRS_FIT, count=len(plan.repairs))] if plan.repairs else []
    first, *others = there or [Note.of(NoteKind.PLAN_EMPTY)]
    return Check("nodes", "pass", first, tuple(others))


def _tolerance(result: FixResult) -> Check:
    told, count = result.verdict.because, len(result.samples.validation)
    if result.samples.origin == "synthetic":
        note = Note.of(NoteKind.GATE_MEASURED_SYNTHETIC, told=told, count=count)
    else:
        note = Note.of(NoteKind.GATE_MEASURED, told=told, count=count)
    return Check("tolerance", "pass" if result.met else "fail", note, rule="HW903")


def _violations(plan: Plan, model: Model, result: FixResult | None, engine: Path | None) -> tuple[Audit | None, Check]:
    def check(status: Status, note: Note, also: Sequence[Note] = (), nodes: Sequence[Violation] = ()) -> Check:
        details = (Note.of(NoteKind.AT_NODE, each.node, what=what_ran(each)) for each in nodes)
        return Check("violations", status, note, tuple(also), tuple(details))

    if result is not None and result.refusal:
        return None, check("fail", Note.of(NoteKind.COMPILER_REFUSES, target=str(plan.target), why=result.refusal))
    if engine is not None:
        audited = _audit_of(engine, model, {node.name: node.format for node in plan.nodes})
        source = str(engine)
    else:
        compiled = result.deploy_files.compiled if result is not None else None
        if compiled is None or compiled.audit is None:
            notes = compiled.notes if compiled is not None else ()
            return None, check(
                "skip", Note.of(NoteKind.NOT_AUDITED, why=notes[0] if notes else Note.of(NoteKind.NO_ENGINE_GIVEN))
            )
        audited, source = compiled.audit, compiled.compiler
    broken, unproven = audited.violations, audited.unproven
    if broken:
        return audited, check("fail", Note.of(NoteKind.PLAN_BROKEN, source=source, count=len(broken)), (), broken)
    if engine is not None and not audited.kept:
        open_ = Note.of(NoteKind.PLAN_NOT_SHOWN, source=source, count=len(unproven))
        return audited, check("fail", open_, (), unproven)
    also = [Note.of(NoteKind.NODES_UNVERIFIED, count=len(unproven))] if unproven else []
    return audited, check("pass", Note.of(NoteKind.PLAN_KEPT, source=source), also)


def _audit_of(engine: Path, model: Model, wanted: Mapping[str, Any]) -> Audit:
    try:
        with engine.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise InputError(f"{engine} cannot be read: {error.strerror}") from error
    nodes = nodes_of_model(model.path) if model.path is not None else None
    if looks_like_json(head.decode("utf-8", errors="replace").replace("\0", "")):
        return audit(read_layers(engine), None, nodes, wanted, str(engine))
    log = read_log(engine)
    return audit(layers_from_log(log, str(engine)), log, nodes, wanted, str(engine))


def _findings(
    model: Model, known: frozenset[FindingKey] | None, baseline: str | Path | None
) -> tuple[tuple[Finding, ...], Check]:
    """A finding of mere information never closes the gate."""
    if known is None:
        return (), Check("findings", "skip", Note.of(NoteKind.NO_BASELINE))
    found = scan(model).findings
    new = tuple(each for each in found if _key(each) not in known)
    bad = [each for each in new if each.severity != "info"]
    gone = len(known - {_key(each) for each in found})
    rest = (Note.of(NoteKind.FINDINGS_GONE, count=gone),) if gone else ()
    if not bad:
        also = (Note.of(NoteKind.FINDINGS_FOR_INFORMATION, count=len(new)),) if new else ()
        return new, Check("findings", "pass", Note.of(NoteKind.NO_NEW_FINDINGS, baseline=str(baseline)), also + rest)
    told = (
        Note.of(NoteKind.FINDING_OF, each.where.name, severity=each.severity, rule=each.rule, what=each.message)
        for each in bad
    )
    note = Note.of(NoteKind.NEW_FINDINGS, count=len(bad), baseline=str(baseline))
    return new, Check("findings", "fail", note, rest, tuple(told))


def _key(each: Finding) -> FindingKey:
    return each.rule, each.severity, each.where.kind, each.where.name


def read_baseline(path: str | Path) -> frozenset[FindingKey]:
    """The findings of a document of `scan --json`."""
    try:
        document = read_json(Path(path))
    except OSError as error:
        raise InputError(f"{path}: the baseline cannot be read: {error.strerror}") from None
    except ValueError:
        told = f"{path} is no baseline: it is not valid JSON"
        raise InputError(not_wanted(Path(path), "a baseline", told)) from None
    if not isinstance(document, dict) or document.get("schema") != SCAN:
        raise InputError(f"{path} is no baseline: it is not a document of `halfwise scan MODEL --json`")
    known = read(document, ScanDocument, f"{path} is no baseline").findings
    return frozenset((each.rule, each.severity, each.where.kind, each.where.name) for each in known)
