"""`halfwise scan`: what can be known of a model's FP16 numerics without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfwise.cli.options import Full, Sarif
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer, write_sarif

__all__ = ["command"]


def command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="ONNX model, or a checkpoint: .safetensors, .pth, .pt, an index of shards, or a folder of them.",
        ),
    ],
    rounding: Annotated[
        bool,
        typer.Option("--rounding", help="Measure the effect of rounding on every weight, not only on doubtful ones."),
    ] = False,
    sarif: Sarif = None,
    full: Full = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.scan/1).")] = False,
) -> None:
    """Find what can go wrong in FP16 without running the model: weights, constants, patterns, types.

    Exit code 0, whatever is found.
    """
    from halfwise.report.files import check_writable
    from halfwise.verbs.scan import scan

    check_writable(sarif, reads=[model])
    with progress(f"scan {model.name}") as shown:
        result = scan(model, rounding=rounding, notify=shown.count)
    write_sarif(sarif, result.findings, model)
    from halfwise.report.scan import show_scan

    answer(result.to_json, lambda screen: show_scan(screen, result, rounding=rounding), as_json=as_json, full=full)
