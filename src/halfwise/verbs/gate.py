"""The gate: does a committed plan still hold for this model? Each question is one check that passes or fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from halfwise.compiler.audit import Audit, audit
from halfwise.compiler.audit_findings import audit_findings
from halfwise.compiler.buildlog import read_log
from halfwise.compiler.layers import layers_from_log, looks_like_json, read_layers
from halfwise.compiler.layers_model import nodes_of_model
from halfwise.core.document import Documented, read
from halfwise.core.english import documented, say_all
from halfwise.core.english.finding import finding
from halfwise.core.errors import InputError
from halfwise.core.finding import Finding, Where
from halfwise.core.measures.named import with_measure
from halfwise.core.metrics import OutputMetric
from halfwise.core.notes import Note
from halfwise.core.wording import counted
from halfwise.model.fingerprint import graph_sha256
from halfwise.model.fp32_model import fp32_model
from halfwise.model.model import Model, load
from halfwise.precision.plan import Plan, read_plan
from halfwise.repair import RULES as REPAIRS
from halfwise.repair import reapplied
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.gate_document import Change, CheckRecord, GatedModel, GateDocument, Question, Status
from halfwise.verbs.scan import scan
from halfwise.verbs.scan.document import ScanDocument

__all__ = ["Change", "Check", "Gate", "gate", "read_baseline"]

FindingKey = tuple[str, str, str, str]  # rule, severity, kind and name of its place

SCAN = "halfwise.scan/1"


@dataclass(frozen=True)
class Check:
    """One question and its answer; `rule` is the finding that a failure makes."""

    id: Question
    status: Status
    message: str
    details: tuple[str, ...] = ()
    rule: str = ""

    def document(self) -> CheckRecord:
        return CheckRecord(self.id, self.status, self.message, self.details)


@dataclass(frozen=True)
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
    def problems(self) -> tuple[Finding, ...]:
        """Everything that speaks against the plan, as findings."""
        where = Where("model", str(self.model.path or ""))
        failed = [check for check in self.checks if check.status == "fail" and check.rule]
        return (
            *(finding(check.rule, where, check.message, {"details": list(check.details)}) for check in failed),
            *(audit_findings(self.audit) if self.audit is not None else ()),
            *self.findings,
        )

    def document(self) -> GateDocument:
        result = self.result
        return GateDocument(
            status="holds" if self.holds else "broken",
            plan=self.plan,
            model=GatedModel(str(self.model.path or ""), self.model.sha256, self.model.stored_nodes, self.change),
            checks=[check.document() for check in self.checks],
            tolerance=result.plan.tolerance.to_json() if result else None,
            error=result.fixed if result else {},
            violations=self.audit.violations if self.audit is not None else (),
            findings=self.findings,
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
    notify: Callable[[str], None] = lambda text: None,
) -> Gate:
    """Check a plan against a model that may have been trained again since.

    Nothing is searched here, so that the tolerance has to hold on all inputs. `baseline` is what `scan --json` said of
    the model that the plan was made for; `engine` is the layer list or the verbose log of the engine that was built.
    `reference` is the FP32 original of a typed model, as `fix` takes it.
    Without an engine the plan is audited where TensorRT-RTX stands for its target's compiler, as `fix` does.
    """
    _, metric = with_measure((), metric)
    known = None if baseline is None else read_baseline(baseline)
    name = "the plan" if isinstance(plan, Plan) else str(plan)
    stated = plan if isinstance(plan, Plan) else read_plan(plan)
    model = fp32_model(model if isinstance(model, Model) else load(model))
    change, fingerprint = _fingerprint(stated, model)
    applied = _applies(stated, model)
    checks = [fingerprint, applied]
    result: FixResult | None = None
    if applied.status == "fail":
        checks.append(Check("tolerance", "skip", "not measured: the plan cannot be applied"))
    else:
        # The fingerprint has been answered for above: this model is the one to apply the plan to.
        here = replace(stated, sha256=model.sha256, data_sha256=model.data_sha256)
        if reference is not None:
            reference = reference if isinstance(reference, Model) else load(reference)
            here = replace(here, reference_sha256=reference.sha256)
        try:
            result = fix(model, inputs, plan=here, judge_on_all=True, metric=metric, reference=reference, notify=notify)
            checks.append(_tolerance(result))
        except InputError as error:
            if change != "graph":
                raise
            checks.append(Check("tolerance", "skip", f"not measured: {error}"))  # the inputs are another graph's
    audited, violations = _violations(stated, model, result, Path(engine) if engine is not None else None)
    notify("scanning")
    new, findings = _findings(model, known, baseline)
    return Gate(
        name,
        model,
        change,
        (*checks, violations, findings),
        result,
        audited,
        new,
        result.notes if result is not None else (),
    )


def _fingerprint(plan: Plan, model: Model) -> tuple[Change, Check]:
    def check(status: Status, message: str) -> Check:
        return Check("fingerprint", status, message, rule="HW901")

    if not plan.sha256:
        return "any", check("pass", "the plan was made for no model in particular")
    same_file = plan.sha256 == model.sha256
    if same_file and plan.data_sha256 in ("", model.data_sha256):
        return "none", check("pass", "the very model that the plan was made for")
    if same_file or plan.graph_sha256 == graph_sha256(model):
        return "weights", check("pass", "the graph that the plan was made for, with other weights")
    if plan.node_count != model.stored_nodes:
        told = f"another graph: the plan was made for {plan.node_count:,} nodes, this graph has {model.stored_nodes:,}"
        return "graph", check("fail", told)
    if plan.graph_sha256:
        told = "another graph with as many nodes: names, wiring, attributes or shapes differ"
        return "graph", check("fail", told)
    told = "another file with as many nodes; the plan holds no fingerprint of its graph to compare with"
    return "weights", check("pass", told)


def _applies(plan: Plan, model: Model) -> Check:
    """Its repairs fit, its nodes are there and are what they were, the outputs that its tolerance names exist."""

    def fail(message: str, details: Sequence[str] = ()) -> Check:
        return Check("nodes", "fail", message, tuple(details), rule="HW902")

    known = {rule.id for rule in REPAIRS}
    unknown = next((entry.rule for entry in plan.repairs if entry.rule not in known), None)
    if unknown is not None:
        raise InputError(f"the plan holds the repair {unknown!r}, which this version does not know")
    try:
        plan.tolerance.check_outputs(model.output_names)
        nodes = reapplied(model, plan.repairs).node_by_name
    except InputError as error:
        return fail(str(error))
    missing = [node.name for node in plan.nodes if node.name not in nodes]
    if missing:
        return fail(f"{len(missing):,} of the plan's {len(plan.nodes):,} nodes are not in the model", missing)
    changed = [
        f"{node.name}: was {node.op}, is {nodes[node.name].op_type}"
        for node in plan.nodes
        if node.op and node.op != nodes[node.name].op_type
    ]
    if changed:
        return fail(f"{len(changed):,} of the plan's {len(plan.nodes):,} nodes are other operators now", changed)
    nodes_told = f"{len(plan.nodes):,} of {counted(len(plan.nodes), 'node')} of the plan are in the model"
    repairs_told = f"{len(plan.repairs):,} of {counted(len(plan.repairs), 'repair')} of the plan fit"
    there = [told for told, each in ((nodes_told, plan.nodes), (repairs_told, plan.repairs)) if each]
    return Check("nodes", "pass", "; ".join(there) or "the plan asks for nothing: all of the model is FP16")


def _tolerance(result: FixResult) -> Check:
    made_up = "synthetic " if result.samples.origin == "synthetic" else ""
    told = f"{result.verdict.words}, on {counted(len(result.samples.validation), f'{made_up}input')}"
    return Check("tolerance", "pass" if result.met else "fail", told, rule="HW903")


def _violations(plan: Plan, model: Model, result: FixResult | None, engine: Path | None) -> tuple[Audit | None, Check]:
    def check(status: Status, message: str, details: Sequence[str] = ()) -> Check:
        return Check("violations", status, message, tuple(details))

    if result is not None and result.refusal:
        return None, check("fail", f"the compiler of {plan.target} refuses the model: {result.refusal}")
    if engine is not None:
        audited = _audit_of(engine, model, {node.name: node.format for node in plan.nodes})
        source = str(engine)
    else:
        compiled = result.deploy_files.compiled if result is not None else None
        if compiled is None or compiled.audit is None:
            told = say_all(compiled.notes if compiled is not None else ())
            return None, check("skip", f"not audited: {told[0] if told else 'no engine was given to audit'}")
        audited, source = compiled.audit, compiled.compiler
    if audited.violations:
        told = [f"{v.node}: wanted {v.wanted}, got {v.got}; {v.why}" for v in audited.violations]
        return audited, check("fail", f"{source} breaks the plan at {counted(len(told), 'node')}", told)
    if engine is not None and not audited.kept:
        told = [f"{v.node}: wanted {v.wanted}; {v.why}" for v in audited.unproven]
        return audited, check("fail", f"{source} does not show {counted(len(told), 'node')} of the plan", told)
    untold = f"; {counted(len(audited.unproven), 'node')} cannot be verified" if audited.unproven else ""
    return audited, check("pass", f"{source} keeps the plan{untold}")


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
        return (), Check(
            "findings", "skip", "not compared: no baseline was given (`halfwise scan MODEL --json` makes it)"
        )
    found = scan(model).findings
    new = tuple(each for each in found if _key(each) not in known)
    bad = [each for each in new if each.severity != "info"]
    gone = len(known - {_key(each) for each in found})
    rest = f"; {gone:,} of the baseline's are gone" if gone else ""
    if not bad:
        also = f" ({len(new):,} for information)" if new else ""
        return new, Check("findings", "pass", f"none that {baseline} does not have{also}{rest}")
    told = [f"{each.severity} {each.rule} {each.where.name}: {each.message}" for each in bad]
    return new, Check(
        "findings", "fail", f"{counted(len(bad), 'finding')} that {baseline} does not have{rest}", tuple(told)
    )


def _key(each: Finding) -> FindingKey:
    return each.rule, each.severity, each.where.kind, each.where.name


def read_baseline(path: str | Path) -> frozenset[FindingKey]:
    """The findings of a document of `scan --json`."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: the baseline cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is no baseline: it is not valid JSON") from None
    if not isinstance(document, dict) or document.get("schema") != SCAN:
        raise InputError(f"{path} is no baseline: it is not a document of `halfwise scan MODEL --json`")
    known = read(document, ScanDocument, f"{path} is no baseline").findings
    return frozenset((each.rule, each.severity, each.where.kind, each.where.name) for each in known)
