"""`halfwise bisect`: which nodes does a real backend need in FP32? As few builds as it can."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from halfwise.cli.backend_options import BackendName, Device, IoBinding, Optimize, Tf32, TimeLimit, backend_options
from halfwise.cli.input_options import takes_inputs
from halfwise.cli.options import (
    Feedback,
    Full,
    Html,
    Interrupted,
    Json,
    MetricSpec,
    ModelPath,
    Reference,
    Steps,
    Tolerances,
    user_metric,
)
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer, write_page

__all__ = ["command"]


@takes_inputs
def command(
    model: ModelPath,
    backend: BackendName = None,
    inputs: list[Any] | None = None,
    tol: Tolerances = None,
    metric: MetricSpec = None,
    rollout: Steps = None,
    feedback: Feedback = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="CMD",
            help="Your own check: 'CMD MODEL [OUTPUTS]' gets the typed model and, with --backend, the folder of its "
            "outputs (0.npz, 1.npz, ...; $HALFWISE_REFERENCE holds the FP32 outputs). Exit code 0: good, 1: bad, "
            "125: cannot tell. Without --backend, CMD runs the model.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan", metavar="PLAN", help="Start from this plan and find what else must be FP32.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for the typed model, its plan and the journal that an interrupted search resumes from.",
            show_default="MODEL.bisect",
        ),
    ] = None,
    builds: Annotated[
        int | None,
        typer.Option(
            "--builds", metavar="N", min=3, help="Stop after this many builds and report the proven culprits."
        ),
    ] = None,
    reference: Reference = None,
    device: Device = 0,
    tf32: Tf32 = False,
    optimize: Optimize = "all",
    io_binding: IoBinding = False,
    time_limit: TimeLimit = 600.0,
    html: Html = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Find every node that a backend needs in FP32, by building typed models. Exit code 1: some were found.

    The all-FP16 model is tried first, then the all-FP32 one, then nodes in the order of the emulator's ranking. A
    failed build is worked around. The same command resumes an interrupted search.
    """
    from halfwise.precision.plan import read_plan
    from halfwise.report.files import check_writable
    from halfwise.verbs.bisect.asked import JOURNAL
    from halfwise.verbs.bisect.run import bisect

    check_writable(html, reads=[model, plan])
    folder = out or Path(f"{model.stem}.bisect")
    try:
        with progress(f"bisect {model.name}") as shown:
            result = bisect(
                model,
                backend,
                inputs,
                out=folder,
                tolerance=tol or (),
                metric=user_metric(metric),
                rollout=rollout,
                feedback=feedback or (),
                check=check,
                plan=read_plan(plan) if plan is not None else None,
                builds=builds,
                reference=reference,
                options=backend_options(device, tf32, optimize, io_binding, time_limit),
                notify=shown.step,
            )
    except KeyboardInterrupt:
        kept = folder / JOURNAL
        raise Interrupted(
            f"interrupted; run the same command to resume from {kept}"
            if kept.exists()
            else "interrupted before anything was built; nothing was written"
        ) from None

    if html is not None:
        from halfwise.core.english import say_all
        from halfwise.report.bisect import step_table

        tables = step_table(result)
        write_page(html, f"Bisection of {model.name}", result, tables=tables, noun="node", notes=say_all(result.notes))
    from halfwise.report.bisect import show_bisect

    answer(result.to_json, lambda screen: show_bisect(screen, result), as_json=as_json, full=full, good=result.good)
