"""`halfwise log`: what a TensorRT build log says about precision."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfwise.errors import InputError

if TYPE_CHECKING:
    from halfwise.engine.buildlog import LogReport
    from halfwise.finding import Finding

__all__ = ["command"]

_COLOURS = {"error": typer.colors.RED, "warning": typer.colors.YELLOW, "info": typer.colors.CYAN}
_SEVERITIES = tuple(_COLOURS)
_SHOWN = 5


def command(
    log: Annotated[Path, typer.Argument(metavar="BUILD.log", help="Log of trtexec, Polygraphy, the Python API, ...")],
    model: Annotated[
        Path | None, typer.Option("--model", help="ONNX model that was built: maps weights to initializers.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.log/1).")] = False,
) -> None:
    """The build log's precision messages as findings: weights, LayerNorm, constraints, types, removed flags."""
    from halfwise.engine.buildlog import model_names, read_log, with_origins

    names = model_names(model) if model is not None else None
    report = read_log(log)
    if not report.recognised:
        raise InputError(_foreign(report))
    if names is not None:
        report = with_origins(report, names)
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)


def _foreign(report: LogReport) -> str:
    what = "no line of it is TensorRT's" if report.lines else "the file is empty"
    return f"{report.source}: {what}; give the whole log of trtexec, Polygraphy, Torch-TensorRT or the Python builder"


def _show(report: LogReport) -> None:
    constraints = f" ({report.constraints} precision constraints)" if report.constraints else ""
    version = f"TensorRT {report.trt_version}" if report.trt_version else "TensorRT version not stated"
    typing = ", strongly typed" if report.strongly_typed and "Strong" not in (report.precision or "") else ""
    typer.echo(f"{report.source}: {version}, {report.precision or 'precision not stated'}{constraints}{typing}")
    if not report.findings:
        typer.echo(f"a TensorRT log of {_lines(report.lines)} with nothing about precision in it{_quiet(report)}")
    ordered = sorted(report.findings, key=lambda f: (_SEVERITIES.index(f.severity), f.rule))
    for _, group in groupby(ordered, key=lambda finding: finding.rule):
        findings = list(group)
        for finding in findings[:_SHOWN]:
            _show_finding(finding)
        if len(findings) > _SHOWN:
            typer.echo(f"        ... and {len(findings) - _SHOWN} more of {findings[0].rule}")
        typer.echo(f"        -> {findings[0].remedy}")
    if any(finding.severity != "info" for finding in ordered) and _unsure(report):
        typer.echo(
            "note: the log states neither its version nor its typing; what to do is said for TensorRT up to 10.16. "
            "From 11 on there is one way: a typed ONNX model (`halfwise fix MODEL --target trt-11`)"
        )


def _unsure(report: LogReport) -> bool:
    return report.trt_version is None and report.strongly_typed is None


def _lines(count: int) -> str:
    return f"{count:,} line{'s' if count != 1 else ''}"


def _quiet(report: LogReport) -> str:
    verbose = report.structure.registered or report.structure.nodes
    return "" if verbose else " (a build with --verbose says more)"


def _show_finding(finding: Finding) -> None:
    place = f"{finding.where.name}: " if finding.where.name and finding.where.kind != "build" else ""
    typer.echo(f"{typer.style(f'{finding.severity:7}', fg=_COLOURS[finding.severity])} {finding.rule} ", nl=False)
    typer.echo(f"{place}{finding.message}")
    names = finding.numbers.get("names") or finding.numbers.get("layers") or ()
    origins = finding.numbers.get("origins", {})
    for name in names[:_SHOWN] if finding.rule != "HW712" else ():
        found = origins.get(name, {}).get("initializers", [])
        typer.echo(f"        {name}" + (f"  = {', '.join(found)}" if found else ""))
    if len(names) > _SHOWN and finding.rule != "HW712":
        typer.echo(f"        ... and {len(names) - _SHOWN} more (--json lists all)")
