"""`halfwise advise`: the known precision defects of a target's version that this model or engine can meet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfwise.cli.reporting import answer

__all__ = ["command"]


def command(
    target: Annotated[
        str, typer.Option("--target", metavar="T", help="Version and GPU that will run the model, e.g. trt-10.0.1@t4.")
    ],
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL|ENGINE-LAYERS]", help="ONNX model, inspector JSON, layer dump or build log."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", min=1.0, help="Time limit of each TensorRT-RTX build.")
    ] = 300.0,
    full: Annotated[
        bool, typer.Option("--full", help="Also show workarounds and sources of advisories that may apply.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.advise/1).")] = False,
) -> None:
    """List the known precision defects of a version that this model can meet, the most certain first."""
    from halfwise.verbs.advise import advise

    result = advise(target, source, time_limit_s=time_limit)
    from halfwise.report.advise import show_advisories

    answer(result.to_json, lambda screen: show_advisories(screen, result), as_json=as_json, full=full)
