"""`halfwise prove`: how the kernels of a machine round, learned from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfwise.cli.backend_options import Device, backend_options
from halfwise.cli.options import Full, Interrupted, Json
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer

__all__ = ["command"]


def command(
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            metavar="B",
            help="Backend to learn from: ort-cuda, ort-tensorrt, ort-rtx, tensorrt, rtx, or cmd:PROGRAM (a program of "
            "yours that runs the models in a folder).",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.")] = Path("machine.json"),
    device: Device = 0,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", min=1.0, help="Time limit of each model of probes.")
    ] = 600.0,
    timed: Annotated[
        bool, typer.Option("--time", help="Also measure how long operators take (ort-cuda, ort-cpu); for fix --cost.")
    ] = False,
    models: Annotated[
        list[Path] | None,
        typer.Option("--time-model", metavar="MODEL", help="Also time this model's operators; repeatable."),
    ] = None,
    own: Annotated[
        list[Path] | None,
        typer.Option("--model", metavar="MODEL", help="Also probe this model's operators at its sizes; repeatable."),
    ] = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Learn how a machine's kernels round: small models run on it, and each result picks one of several hypotheses.

    `fix --profile FILE` judges by what was learned. The same command resumes an interrupted run.
    """
    from halfwise.report.files import check_writable
    from halfwise.verbs.prove import JOURNAL, prove

    if not out.is_dir():  # of which `prove` tells what to write instead
        check_writable(out, reads=[*(models or ()), *(own or ())])
    try:
        with progress(f"prove {backend}") as shown:
            options = backend_options(device, False, "all", False, time_limit)
            proof = prove(backend, out=out, options=options, time=timed, models=models or (), own=own or (),
                          notify=shown.count)  # fmt: skip
    except KeyboardInterrupt:
        kept = out.parent / JOURNAL
        raise Interrupted(
            f"interrupted; run the same command to resume from {kept}" if kept.exists() else "interrupted"
        ) from None

    from halfwise.report.prove import show_proof

    answer(proof.to_json, lambda screen: show_proof(screen, proof), as_json=as_json, full=full)
