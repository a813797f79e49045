"""`halfwise audit`: what precision really ran, node by node, and whether a plan was kept."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfwise.cli.options import Full, Html, Sarif
from halfwise.cli.reporting import answer, write_page, write_sarif

if TYPE_CHECKING:
    from halfwise.report.terminal import Terminal
    from halfwise.verbs.audit import AuditResult

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
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="violations|unproven|kept",
            help="Show only these nodes; --json has all.",
            show_default=False,
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME", help="Show only this node; * and ? match.", show_default=False),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option("--module", metavar="SCOPE", help="Show only the nodes of this module.", show_default=False),
    ] = None,
    sarif: Sarif = None,
    html: Html = None,
    full: Full = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.audit/1).")] = False,
) -> None:
    """Show the precision that each ONNX node ran in. Exit code 1: the plan was not kept, or that cannot be shown.

    Without a plan, FP32 that a typed model states counts: exit code 1 where a node of it ran otherwise.
    """
    from halfwise.report.files import check_writable
    from halfwise.verbs.audit import Wanted, audit

    check_writable(sarif, html, reads=[source, plan, model])
    shown = Wanted.of(only, node, module)
    result = audit(source, plan, model, inputs or (), target=target, time_limit_s=time_limit)
    write_sarif(sarif, result.findings, result.model or source)

    if html is not None:
        from halfwise.core.english import say_all

        picked, notes = result.only(shown), say_all(result.audit.notes)
        write_page(html, f"Audit of {source.name}", picked, noun="node", notes=notes)

    def screen(terminal: Terminal) -> None:
        from halfwise.report.audit import show_audit

        show_audit(terminal, result, shown)
        if said := _known_words(result, source, model):
            terminal.line(said)

    answer(result.to_json, screen, as_json=as_json, full=full, good=result.kept)


def _known_words(result: AuditResult, source: Path, model: Path | None) -> str:
    from halfwise.deploy.advisories import summary

    if result.target is None:
        return "note: the version that built this engine is not known; --target T adds the known defects of a version"
    said = summary(result.target, result.advisories)
    words = ["halfwise", "advise", "--target", str(result.target), str(model or source)]
    return f"{said} ({shlex.join(words)})" if said else ""
