"""`halfwise verify`: do two models, or a model and saved outputs, give the same answers within a tolerance?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from halfwise.cli.backend_options import BackendName, Device, IoBinding, Optimize, Tf32, TimeLimit, backend_options
from halfwise.cli.going_on import going_on
from halfwise.cli.input_options import takes_inputs
from halfwise.cli.options import (
    Feedback,
    Full,
    Json,
    MetricSpec,
    Steps,
    Tolerances,
    user_metric,
)
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer

__all__ = ["command"]

_KINDS = "an ONNX model, or saved outputs (.npz, Polygraphy's or trtexec's; a folder of them, one a sample)"


@takes_inputs
def command(
    reference: Annotated[Path, typer.Argument(metavar="A", help=f"The reference: {_KINDS}.", show_default=False)],
    other: Annotated[Path, typer.Argument(metavar="B", help=f"What is judged: {_KINDS}.", show_default=False)],
    inputs: list[Any] | None = None,
    tol: Tolerances = None,
    metric: MetricSpec = None,
    rollout: Steps = None,
    feedback: Feedback = None,
    profile: Annotated[
        str,
        typer.Option("--profile", metavar="P", help="Rounding profile to emulate: strict, ort-cuda, or prove's file."),
    ] = "strict",
    backend: BackendName = None,
    device: Device = 0,
    tf32: Tf32 = False,
    optimize: Optimize = "all",
    io_binding: IoBinding = False,
    time_limit: TimeLimit = 600.0,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Compare B with A output by output; FP16 in a typed model is emulated. Exit code 1: the tolerance is missed.

    With --backend, B runs on that backend. A is the reference, emulated on the CPU.
    """
    from halfwise.verbs.verify import verify

    with going_on("verify", reference, other), progress(f"verify {other.name}") as shown:
        result = verify(
            reference,
            other,
            inputs,
            tolerance=tol or (),
            metric=user_metric(metric),
            profile=profile,
            rollout=rollout,
            feedback=feedback or (),
            backend=backend,
            options=backend_options(device, tf32, optimize, io_binding, time_limit),
            notify=shown.count,
        )

    from halfwise.report.verify import show_verification

    judged = f"{other} on {result.record.title}" if result.record is not None else str(other)
    answer(
        result.to_json,
        lambda screen: show_verification(screen, result, str(reference), judged),
        as_json=as_json,
        full=full,
        good=result.met,
    )
