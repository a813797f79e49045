"""`halfwise log`: what a TensorRT build log says about precision."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfwise.cli.options import Full, Html, Sarif
from halfwise.cli.reporting import answer, write_page, write_sarif

__all__ = ["command"]


def command(
    log: Annotated[Path, typer.Argument(metavar="BUILD.log", help="Log of trtexec, Polygraphy, the Python API, ...")],
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="MODEL", help="ONNX model that was built; maps weights to initializers."),
    ] = None,
    sarif: Sarif = None,
    html: Html = None,
    full: Full = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.log/1).")] = False,
) -> None:
    """List the precision messages of a build log as findings: weights, LayerNorm, constraints, types, removed flags.

    Exit code 0, whatever is found.
    """
    from halfwise.report.files import check_writable
    from halfwise.verbs.log import log as read

    check_writable(sarif, html, reads=[log, model])
    report = read(log, model)
    write_sarif(sarif, report.findings, log)
    write_page(html, f"Build log {log.name}", report, noun="finding")
    from halfwise.report.log import show_log

    answer(report.to_json, lambda screen: show_log(screen, report), as_json=as_json, full=full)
