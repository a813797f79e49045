"""`halfwise log`: what a TensorRT build log says about precision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfwise.cli.options import Full, Sarif
from halfwise.cli.reporting import answer, write_sarif
from halfwise.core.errors import InputError

if TYPE_CHECKING:
    from halfwise.compiler.buildlog import LogReport

__all__ = ["command"]


def command(
    log: Annotated[Path, typer.Argument(metavar="BUILD.log", help="Log of trtexec, Polygraphy, the Python API, ...")],
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="MODEL", help="ONNX model that was built; maps weights to initializers."),
    ] = None,
    sarif: Sarif = None,
    full: Full = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.log/1).")] = False,
) -> None:
    """List the precision messages of a build log as findings: weights, LayerNorm, constraints, types, removed flags."""
    from halfwise.compiler.buildlog import model_names, read_log, with_origins
    from halfwise.core.files.identify import not_wanted
    from halfwise.report.files import check_writable

    check_writable(sarif)
    names = model_names(model) if model is not None else None
    report = read_log(log)
    if not report.recognised:
        raise InputError(not_wanted(log, "a build log", _foreign(report)))
    if names is not None:
        report = with_origins(report, names)
    write_sarif(sarif, report.findings, log)
    from halfwise.report.log import show_log

    answer(report.to_json, lambda screen: show_log(screen, report), as_json=as_json, full=full)


def _foreign(report: LogReport) -> str:
    what = "no line of it is TensorRT's" if report.lines else "the file is empty"
    return f"{report.source}: {what}; give the whole log of trtexec, Polygraphy, Torch-TensorRT or the Python builder"
