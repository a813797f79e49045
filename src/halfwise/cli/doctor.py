"""`halfwise doctor`: what the files that a user has in hand are, what is wrong, and the one next command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfwise.cli.options import Full, Json
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer

__all__ = ["command"]


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Any mix: ONNX models, build logs and scripts, layer lists, engines, checkpoints, inputs, folders.",
            show_default=False,
        ),
    ],
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Say what each file is and what they tell together; with inputs, also run the model. Exit code 1: a problem."""
    from halfwise.verbs.doctor import doctor

    with progress("doctor") as shown:
        result = doctor(files, notify=shown.count)

    from halfwise.report.doctor import show_doctor

    answer(result.to_json, lambda screen: show_doctor(screen, result), as_json=as_json, full=full, good=result.good)
