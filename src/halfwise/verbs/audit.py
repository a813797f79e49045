"""`audit`: what precision really ran in an engine, node by node, beside what a plan asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from halfwise.compiler.audit import Audit, Violation
from halfwise.compiler.audit import audit as judge
from halfwise.compiler.audit import stated as typed_wishes
from halfwise.compiler.audit_document import AuditDocument
from halfwise.compiler.audit_findings import audit_findings, what_ran
from halfwise.compiler.buildlog import LogReport, read_log
from halfwise.compiler.layers import EngineLayers, layers_from_log, looks_like_json, read_layers
from halfwise.compiler.layers_evidence import NodeInfo
from halfwise.compiler.layers_model import compile_for_log, nodes_of_model
from halfwise.core.document import Documented, read
from halfwise.core.english import said, say
from halfwise.core.errors import InputError
from halfwise.core.files.absent import absent
from halfwise.core.files.identify import not_wanted
from halfwise.core.finding import Finding
from halfwise.core.formats import Format
from halfwise.core.json_text import read_json
from halfwise.core.notes import Note, NoteKind
from halfwise.core.summary import Summary
from halfwise.core.targets import Target
from halfwise.core.whole_files import is_special
from halfwise.core.wording import counted
from halfwise.deploy.advisories import Advisory, advisories_of_engine, target_of_log
from halfwise.precision.plan_document import KeptNodes

__all__ = ["AuditResult", "AuditedNode", "Wanted", "audit"]

Status = Literal["violation", "unproven", "kept", ""]
_ORDER: Mapping[Status, int] = {"violation": 0, "unproven": 1, "kept": 2, "": 3}


@dataclass(frozen=True)
class AuditedNode:
    """One node: what the plan asked for (empty: nothing), what it got, in which kernels, and how that is known.

    `status`: "violation", "unproven" or "kept" where a plan asked for it.
    """

    node: str
    op: str
    compute: bool
    asked: str
    got: str
    kernels: tuple[str, ...]
    evidence: str
    status: Status


@dataclass(frozen=True)
class Wanted:
    """Which nodes to tell of: by status, by name (with wildcards), by the module that they are in; empty takes all."""

    status: str = ""
    node: str = ""
    module: str = ""

    @classmethod
    def of(cls, only: str | None, node: str | None, module: str | None) -> Wanted:
        """`only` is one of violations, unproven and kept."""
        statuses = {"violations": "violation", "unproven": "unproven", "kept": "kept"}
        if only is not None and only not in statuses:
            raise InputError(f"--only {only}: write one of {', '.join(statuses)}")
        return cls(statuses[only] if only else "", node or "", (module or "").rstrip("/"))

    def __bool__(self) -> bool:
        return bool(self.status or self.node or self.module)

    def takes(self, row: AuditedNode) -> bool:
        inside = not self.module or row.node == self.module or row.node.startswith(f"{self.module}/")
        named = not self.node or row.node == self.node or fnmatchcase(row.node, self.node)
        return inside and named and self.status in ("", row.status)


@dataclass(frozen=True, repr=False)
class AuditResult(Documented):
    """The audit with what was asked for. `wanted` is None without a plan, `target` where nothing names a version."""

    audit: Audit
    wanted: Mapping[str, Format] | None
    target: Target | None = None
    advisories: tuple[Advisory, ...] = field(default=())
    model: Path | None = None  # the ONNX file that the engine was built from
    shown: Wanted | None = None  # the nodes to tell of, where not all

    def only(self, wanted: Wanted) -> AuditResult:
        """The same, of which only these nodes are told; the document has all."""
        return replace(self, shown=wanted)

    @property
    def kept(self) -> bool:
        """Whether every wish is shown to have been kept; without a plan, whether no FP32 of a typed model was lost."""
        return self.audit.kept

    @property
    def findings(self) -> tuple[Finding, ...]:
        return audit_findings(self.audit)

    @property
    def nodes(self) -> tuple[AuditedNode, ...]:
        """Every node, those that a plan asks for first, and of them the violations."""
        against: dict[str, tuple[Status, Violation]] = {v.node: ("unproven", v) for v in self.audit.unproven}
        against.update((v.node, ("violation", v)) for v in self.audit.violations)
        wanted = {name: fmt.value for name, fmt in (self.wanted or {}).items() if fmt is not Format.FP16}
        rows = []
        for node in self.audit.nodes:
            found = against[node.node][1] if node.node in against else None
            status: Status = against[node.node][0] if found else "kept" if node.node in wanted else ""
            notes = said(found.messages if found is not None else node.notes)
            evidence = f"{node.coverage}: {notes}" if notes else node.coverage
            asked = found.wanted if found is not None else wanted.get(node.node, "")
            rows.append(
                AuditedNode(node.node, node.op, node.compute, asked, node.precision, node.kernels, evidence, status)
            )
        seen = {node.node for node in self.audit.nodes}
        for name, (standing, violation) in against.items():
            if name not in seen:
                evidence = say(what_ran(violation))
                rows.append(AuditedNode(name, "", True, violation.wanted, "unknown", (), evidence, standing))
        told = rows if self.shown is None else [row for row in rows if self.shown.takes(row)]
        return tuple(sorted(told, key=lambda row: _ORDER[row.status]))

    def summary(self) -> Summary:
        """What each node was asked to run in, and what it ran in; violations first."""
        rows = tuple(
            (row.node, row.op, row.asked, row.got, ", ".join(row.kernels), row.evidence, row.status)
            for row in self.nodes
            if row.compute or row.asked
        )
        headline = f"{self.audit.source}: {counted(len(rows), 'node')}"
        broken, open_ = len(self.audit.violations), len(self.audit.unproven)
        if self.wanted is not None:
            headline += f", {counted(broken, 'violation')} of the plan, {open_:,} unproven"
        elif broken:
            headline += f", {counted(broken, 'violation')} of what the model states"
        columns = ("node", "operator", "asked", "got", "kernels", "evidence", "status")
        return Summary(headline, columns, rows, self.kept if self.wanted is not None or broken else None)

    def document(self) -> AuditDocument:
        return structs.replace(
            self.audit.document(),
            target=str(self.target) if self.target else None,
            advisories=[advisory.document() for advisory in self.advisories],
        )


def audit(
    source: str | Path,
    plan: str | Path | None = None,
    model: str | Path | None = None,
    inputs: Iterable[str | Path] = (),
    *,
    target: str | None = None,
    time_limit_s: float = 600.0,
) -> AuditResult:
    """Show the precision that each ONNX node ran in, and whether a plan was kept.

    `source` is an engine's inspector JSON, a layer dump, a verbose build log, or an ONNX model to compile here (with
    TensorRT-RTX, on these `inputs`). `model` is the ONNX model that the engine was built from. Without a plan, FP32
    that a typed model states counts: its nodes that ran otherwise are violations.
    """
    stated = Target.parse(target) if target is not None else None
    asked = _kept(Path(plan)) if plan is not None else None
    engine = _read(Path(source), Path(model) if model is not None else None, [Path(p) for p in inputs], time_limit_s)
    seen = engine.layers, engine.log, engine.nodes
    wishes = asked.formats if asked is not None else typed_wishes(*seen)
    found = judge(*seen, wishes, engine.source)
    notes = (*engine.notes, *found.notes)
    if asked is None:
        names = [violation.node for violation in found.violations]
        told = Note.of(NoteKind.STATED_NOT_KEPT, names=names, count=len(names), total=len(wishes))
        found = replace(found, unproven=())
        notes = (*notes, told) if names else notes
    found = replace(found, notes=notes)
    meant = _target(engine, stated, asked)
    known = advisories_of_engine(meant, engine.layers, engine.model) if meant is not None else ()
    return AuditResult(found, asked.formats if asked is not None else None, meant, tuple(known), engine.model)


@dataclass(frozen=True)
class _Engine:
    """The source of an audit, read. `model`: the ONNX file it was built from, where one is known."""

    source: str
    layers: EngineLayers
    log: LogReport | None
    nodes: tuple[NodeInfo, ...] | None
    model: Path | None
    compiled_here: bool = False
    notes: tuple[Note, ...] = ()


def _read(source: Path, model: Path | None, inputs: Sequence[Path], time_limit_s: float) -> _Engine:
    head = _head(source)
    nodes = nodes_of_model(model) if model is not None else None
    if looks_like_json(head.decode("utf-8", errors="replace").replace("\0", "")):
        return _Engine(str(source), read_layers(source), None, nodes, model)
    if source.suffix == ".onnx" or (b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))):
        nodes = nodes or nodes_of_model(source)
        notes: list[Note] = []
        log = compile_for_log(source, inputs, time_limit_s, notes.append)
        layers = layers_from_log(log, str(source))
        return _Engine(str(source), layers, log, nodes, model or source, True, tuple(notes))
    log = read_log(source)
    return _Engine(str(source), layers_from_log(log, str(source)), log, nodes, model)


def _target(engine: _Engine, stated: Target | None, plan: KeptNodes | None) -> Target | None:
    """The user's target, else the one that the build states; a build made here stands for the plan's target."""
    planned: Target | None = None
    with suppress(InputError):
        planned = Target.parse((plan and plan.target) or "")
    built = target_of_log(engine.log) if engine.log is not None else None
    order = (stated, planned, built) if engine.compiled_here else (stated, built, planned)
    return next((each for each in order if each is not None and each.span is not None), None)


def _head(source: Path) -> bytes:
    if not source.exists():
        raise absent(source)
    if source.is_dir():
        raise InputError(f"{source} is a folder; name the layer information, the log or the model in it")
    if is_special(source):
        raise InputError(f"{source} is a pipe or a device; name a file")
    try:
        with source.open("rb") as file:
            return file.read(4096)
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from error


def _kept(plan: Path) -> KeptNodes:
    """The nodes that the plan keeps out of FP16."""
    try:
        document: Any = read_json(plan)
    except FileNotFoundError:
        raise absent(plan, "plan") from None
    except OSError as error:
        raise InputError(f"{plan}: the plan cannot be read: {error.strerror}") from error
    except ValueError:
        raise InputError(not_wanted(plan, "a plan", f"{plan}: the plan is not valid JSON: write it again")) from None
    return read(document, KeptNodes, f"{plan} is not a plan that `halfwise fix` wrote")
