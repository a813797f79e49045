"""`halfwise demo`: the whole flow on a model that it makes itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from halfwise.cli.options import Json
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer

__all__ = ["command"]


def command(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder for the model, its inputs and the result.", show_default="a new folder"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fix a small model that goes silently wrong in FP16, in seconds."""
    from halfwise.report.html.fix_report import with_report
    from halfwise.verbs.demo import demo

    with progress("demo") as shown:
        result = demo(out, notify=shown.step)
        shown.step("writing the report")
        result = replace(result, fix=with_report(result.fix, result.scan, result.command))

    from halfwise.report.demo import show_demo

    answer(result.to_json, lambda screen: show_demo(screen, result), as_json=as_json, good=result.met)
