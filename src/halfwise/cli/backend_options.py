"""Options of the verbs that run a model on a real backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from halfwise.core.errors import InputError

if TYPE_CHECKING:
    from halfwise.backends import BackendOptions

__all__ = ["BackendName", "Device", "IoBinding", "Optimize", "Tf32", "TimeLimit", "backend_options"]

_LEVELS = ("disable", "basic", "extended", "all")

BackendName = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="B",
        help="Backend that runs the model: ort-cpu, ort-cuda, ort-tensorrt, ort-rtx, tensorrt, rtx, cmd:PROGRAM "
        "(as in prove), or saved:PATH.",
        show_default=False,
    ),
]
Device = Annotated[int, typer.Option("--gpu", metavar="N", min=0, help="Number of the GPU.")]
Tf32 = Annotated[bool, typer.Option("--tf32", help="Allow TF32 for FP32 products.")]
Optimize = Annotated[
    str,
    typer.Option("--optimize", metavar="LEVEL", help=f"ONNX Runtime's graph optimisation: {', '.join(_LEVELS)}."),
]
IoBinding = Annotated[bool, typer.Option("--io-binding", help="Keep inputs and outputs on the device (ONNX Runtime).")]
TimeLimit = Annotated[
    float,
    typer.Option("--time-limit", metavar="SECONDS", min=1.0, help="Time limit for building and running one model."),
]


def backend_options(device: int, tf32: bool, optimize: str, io_binding: bool, time_limit_s: float) -> BackendOptions:
    from halfwise.backends import BackendOptions
    from halfwise.backends.backend import OPTIMIZATIONS

    level = next((known for known in OPTIMIZATIONS if known == optimize), None)
    if level is None:
        raise InputError(f"--optimize {optimize}: write one of {', '.join(OPTIMIZATIONS)}")
    return BackendOptions(device, tf32, level, io_binding, time_limit_s)
