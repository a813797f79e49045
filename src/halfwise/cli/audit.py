"""`halfwise audit`: what precision really ran, node by node, and whether a plan was kept."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfwise.cli.options import Full, Sarif
from halfwise.cli.reporting import answer, write_sarif
from halfwise.core.errors import InputError

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit, NodeInfo
    from halfwise.compiler.audit_document import AuditDocument
    from halfwise.compiler.buildlog import LogReport
    from halfwise.compiler.layers import EngineLayers
    from halfwise.core.formats import Format
    from halfwise.core.notes import Note
    from halfwise.core.targets import Target
    from halfwise.deploy.advisories import Advisory
    from halfwise.precision.plan_document import KeptNodes
    from halfwise.report.terminal import Terminal

__all__ = ["command"]


def command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="Inspector JSON, layer dump, verbose build log, or an ONNX model to compile here."
        ),
    ],
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="PLAN", help="Plan (JSON) whose fp32_nodes must have run in FP32.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="MODEL", help="ONNX model that the engine was built from.")
    ] = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--inputs", metavar="PATH", help="Inputs for the shapes of a model to compile; repeatable."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="T",
            help="Version whose known defects to list, e.g. trt-10.0.1@t4.",
            show_default="what the log states, else the plan",
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", min=1.0, help="Time limit for compiling a model.")
    ] = 600.0,
    sarif: Sarif = None,
    full: Full = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.audit/1).")] = False,
) -> None:
    """Show the precision that each ONNX node ran in. Exit code 1: the plan was not kept, or that cannot be shown."""
    from halfwise.core.targets import Target
    from halfwise.report.files import check_writable

    check_writable(sarif)
    stated = Target.parse(target) if target is not None else None
    kept = _kept(plan) if plan is not None else None
    wanted = kept.formats if kept is not None else {}
    engine = _read(source, model, inputs or (), time_limit)
    result = engine.audit(wanted)
    known = _known(engine, stated, kept)
    from halfwise.compiler.audit_findings import audit_findings

    write_sarif(sarif, audit_findings(result), engine.model or source)

    def screen(terminal: Terminal) -> None:
        from halfwise.report.audit import show_audit

        show_audit(terminal, result, len(wanted) if plan is not None else None)
        if said := _known_words(known, source, model):
            terminal.line(said)

    answer(lambda: known.beside(result.document()).to_json(), screen, as_json=as_json, full=full, good=result.kept)


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

    def audit(self, wanted: Mapping[str, Format]) -> Audit:
        from halfwise.compiler.audit import audit

        result = audit(self.layers, self.log, self.nodes, wanted, self.source)
        return replace(result, notes=(*self.notes, *result.notes))


@dataclass(frozen=True)
class _Known:
    """The target that is meant, and what is known of it; no target where nothing names one."""

    target: Target | None
    advisories: tuple[Advisory, ...] = ()

    def beside(self, audit: AuditDocument) -> AuditDocument:
        from msgspec import structs

        return structs.replace(
            audit,
            target=str(self.target) if self.target else None,
            advisories=[advisory.document() for advisory in self.advisories],
        )


def _read(source: Path, model: Path | None, inputs: Sequence[Path], time_limit_s: float) -> _Engine:
    from halfwise.compiler.buildlog import read_log
    from halfwise.compiler.layers import layers_from_log, looks_like_json, read_layers
    from halfwise.compiler.layers_model import compile_for_log, nodes_of_model

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


def _known(engine: _Engine, stated: Target | None, plan: KeptNodes | None) -> _Known:
    """The user's target, else the one that the build states; a build made here stands for the plan's target."""
    from halfwise.core.targets import Target
    from halfwise.deploy.advisories import advisories_of_engine, target_of_log

    planned: Target | None = None
    with suppress(InputError):
        planned = Target.parse((plan and plan.target) or "")
    built = target_of_log(engine.log) if engine.log is not None else None
    order = (stated, planned, built) if engine.compiled_here else (stated, built, planned)
    target = next((each for each in order if each is not None and each.span is not None), None)
    if target is None:
        return _Known(None)
    return _Known(target, advisories_of_engine(target, engine.layers, engine.model))


def _head(source: Path) -> bytes:
    if not source.exists():
        raise InputError(f"{source}: there is no such file")
    if source.is_dir():
        raise InputError(f"{source} is a folder; name the layer information, the log or the model in it")
    try:
        with source.open("rb") as file:
            return file.read(4096)
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from error


def _kept(plan: Path) -> KeptNodes:
    """The nodes that the plan keeps out of FP16."""
    from halfwise.core.document import read
    from halfwise.precision.plan_document import KeptNodes

    try:
        document: Any = json.loads(plan.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{plan}: the plan cannot be read: {error.strerror}") from error
    except ValueError:
        raise InputError(f"{plan}: the plan is not valid JSON") from None
    return read(document, KeptNodes, f"{plan} is not a plan that `halfwise fix` wrote")


def _known_words(known: _Known, source: Path, model: Path | None) -> str:
    from halfwise.deploy.advisories import summary

    if known.target is None:
        return "note: the version that built this engine is not known; --target T adds the known defects of a version"
    said = summary(known.target, known.advisories)
    words = ["halfwise", "advise", "--target", str(known.target), str(model or source)]
    return f"{said} ({shlex.join(words)})" if said else ""
