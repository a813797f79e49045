"""What the build tells: flags without effect, wishes that were not kept, weights warned about, known defects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from halfwise.compiler.audit import NodeInfo, audit, stated
from halfwise.compiler.buildlog import model_names, with_origins
from halfwise.compiler.layers_fields import EngineLayers
from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Fit, Span, Target
from halfwise.core.targets.version import Version
from halfwise.deploy.advisories import Advisory, advisories_of_engine, facts_of_nodes, match
from halfwise.deploy.build_command import lint, wanted_layers
from halfwise.model.patterns import Pattern
from halfwise.verbs.doctor.case import Case

__all__ = ["built_findings"]

_NORMS = ("layernorm", "rmsnorm", "instancenorm", "groupnorm")
_USUAL = Version.parse("10.9").span  # whose grammar is assumed where nothing states a version
_WEIGHTS = ("HW701", "HW702", "HW703")


def built_findings(case: Case, scanned: Sequence[Finding], patterns: Sequence[Pattern]) -> Iterator[Finding]:
    """In the order in which they matter."""
    yield from _swallowed(case, patterns)
    yield from _defects(case)
    yield from _flags(case)
    yield from _logged(case, scanned)


def _span(case: Case) -> Span:
    found = case.target.span if case.target is not None else None
    return found or _USUAL


def _layer_names(case: Case) -> dict[str, str]:
    """Every name that a layer may bear, and the node it is of: the log's, else the nodes' own."""
    if case.log is not None and case.log.structure.registered:
        return dict(case.log.structure.registered)
    return {} if case.model is None else {node.name or "": node.name or "" for node in case.model.nodes}


def _flags(case: Case) -> Iterator[Finding]:
    builder = case.target.runtime.builder if case.target is not None else None
    if case.command is not None and (builder is None or builder.flags):  # else its options are not known here
        version = case.target.title if case.target is not None else ""
        yield from lint(case.command, _layer_names(case), _span(case), version)


def _swallowed(case: Case, patterns: Sequence[Pattern]) -> Iterator[Finding]:
    """Nodes that were asked for in FP32, by flags, by a plan or by the model's own types, and did not run so."""
    if case.layers is None:
        return
    nodes = _nodes(case)
    wanted = _wanted(case) or stated(case.layers, case.log, nodes)
    if not wanted:
        return
    result = audit(case.layers, case.log, nodes, wanted)
    lost = {violation.node: violation for violation in result.violations}
    if not lost:
        return
    norm = {name for pattern in patterns if pattern.kind in _NORMS for name in pattern.nodes}
    norm |= {name for each in (case.log.findings if case.log else ()) if each.rule == "HW711"
             for name in each.numbers.get("layers", ())}  # fmt: skip
    kernels = list(dict.fromkeys(kernel for each in lost.values() for kernel in each.kernels))
    region = next((kernel for kernel in kernels if "ForeignNode" in kernel), "") or _region(case.layers)
    why = list(next(iter(lost.values())).messages)
    numbers = {"nodes": list(lost), "asked": len(wanted), "kernels": kernels}
    names = list(lost)
    if all(name in norm for name in names) and region:
        note = Note.of(NoteKind.NORM_SWALLOWED, region, names=names, count=len(names), total=len(wanted))
    else:
        note = Note.of(NoteKind.ASKED_NOT_KEPT, names=names, count=len(names), total=len(wanted), why=why)
    yield finding("HW605", Where("layer", region or kernels[0] if kernels or region else ""), note, numbers)


def _region(layers: EngineLayers) -> str:
    return next((layer.name for layer in layers.layers if layer.is_region), "")


def _wanted(case: Case) -> dict[str, Format]:
    if case.plan is not None:
        return {node.name: node.format for node in case.plan.nodes}
    if case.command is None:
        return {}
    nodes = _layer_names(case)
    asked = wanted_layers(case.command, nodes, _span(case))
    return {nodes[layer]: Format.FP32 for layer, kind in asked.items() if kind == "fp32"}


def _nodes(case: Case) -> Sequence[NodeInfo] | None:
    if case.model is None or case.model.path is None:
        return None
    from halfwise.compiler.layers_model import nodes_of_model

    return nodes_of_model(case.model.path)


def _defects(case: Case) -> Iterator[Finding]:
    """What surely applies of the known defects of this version; one whose kernel is in the engine is an error."""
    if case.target is None or case.target.runtime.builder is None:
        return
    for advisory in _advisories(case.target, case):
        if advisory.applies is not Fit.YES or advisory.entry.kind not in ("defect", "report"):
            continue
        entry = advisory.entry
        seen = bool(entry.kernels) and case.layers is not None
        fixed = Note.of(NoteKind.FIXED_IN, version=entry.fixed_in) if entry.fixed_in else ""
        note = Note.of(
            NoteKind.DEFECT_OF_VERSION, entry.id, symptom=entry.symptom, why=list(advisory.because), fixed=fixed
        )
        numbers = {"id": entry.id, "kind": entry.kind, "fixed_in": entry.fixed_in, "source": list(entry.source)}
        found = finding("HW606", Where("advisory", entry.id), note, numbers, "error" if seen else None)
        yield structs.replace(found, remedy=entry.workaround)


def _advisories(target: Target, case: Case) -> tuple[Advisory, ...]:
    if case.layers is not None:
        return advisories_of_engine(target, case.layers, case.model.path if case.model is not None else None)
    return match(target, facts_of_nodes(case.model.nodes) if case.model is not None else None)


def _logged(case: Case, scanned: Sequence[Finding]) -> Iterator[Finding]:
    """What the log warns of; of weights only with what it means in this model."""
    if case.log is None:
        return
    path = case.model.path if case.model is not None else None
    log = with_origins(case.log, model_names(path)) if path is not None else case.log
    harmful = {each.where.name for each in scanned if each.rule in ("HW102", "HW103", "HW104", "HW106")}
    named: dict[str, None] = {}
    warned = 0
    for each in log.findings:
        origins: Mapping[str, Mapping[str, list[str]]] = each.numbers.get("origins", {})
        if each.rule in _WEIGHTS and case.model is not None:
            warned += int(each.numbers["weights"])
            named.update((name, None) for origin in origins.values() for name in origin["initializers"])
        elif each.severity != "info":
            yield each
    if not warned:
        return
    bad = sorted(harmful & named.keys()) if named else sorted(harmful)
    if bad:
        note = Note.of(NoteKind.WEIGHTS_WARNED_HARM, count=warned, names=bad)
        yield finding("HW607", Where("build", "weights"), note, {"weights": warned, "names": bad})
    else:
        note = Note.of(NoteKind.WEIGHTS_WARNED_HARMLESS, count=warned)
        found = finding("HW607", Where("build", "weights"), note, {"weights": warned, "names": []}, "info")
        yield structs.replace(found, remedy="nothing to do for these weights; look at the other findings")
