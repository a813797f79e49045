"""Builds a typed ONNX model with TensorRT-RTX, NVIDIA's real parser and compiler, on any machine, without a GPU.

What comes out: the engine (if asked for), the verbose log, the compiled kernel list and the layers of every ONNX node.
Limits: strong typing only; the kernels are chosen again and compiled on the target GPU, so the list shows the
compiler's intent there; nothing is run. The compiler lives in a child process: whatever it does, the parent survives.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from halfwise.compiler.build import BuildRequest, BuildResult, Profiles, installed, normalised
from halfwise.compiler.build_in_child import build_in_child
from halfwise.core.errors import InputError, MissingBackend

__all__ = ["INSTALL", "MODULES", "available", "build", "build_request"]

INSTALL = (
    "pip install 'halfwise[rtx]' (tensorrt-rtx-cu13-libs and tensorrt-rtx-cu13-bindings at the same version; "
    "wheels exist for Linux and Windows)"
)
# The wheels install the bindings alone; NVIDIA's download also brings the package around them.
MODULES = ("tensorrt_rtx_bindings", "tensorrt_rtx")
_TITLE = "TensorRT-RTX"
_IDLE_S = 60.0  # a compiler that runs nothing on a GPU computes all the time


def available() -> bool:
    """Whether TensorRT-RTX is installed; asks without importing it."""
    return installed(MODULES)


def build(
    model_path: str | PathLike[str],
    *,
    profiles: Profiles | None = None,
    time_limit_s: float = 600.0,
    engine_path: str | PathLike[str] | None = None,
    log_path: str | PathLike[str] | None = None,
    compute_capabilities: Sequence[str] = (),
    tf32: bool = True,
) -> BuildResult:
    """Parse and build `model_path`; the engine is kept only where `engine_path` is given.

    `profiles` gives (min, opt, max) for every input of open shape, see `build.profiles_from_samples`.
    `compute_capabilities`, such as ["8.6", "12.0"], default to the compiler's own choice; 7.5 must be asked for.
    Without `log_path` the log lives until this process ends. Raises BuildError with NVIDIA's reason where the model is
    refused, and for a crash or a hang of the compiler; MissingBackend where TensorRT-RTX is not installed.
    """
    return build_request(
        BuildRequest(
            model_path=Path(model_path),
            profiles=normalised(profiles),
            time_limit_s=time_limit_s,
            engine_path=None if engine_path is None else Path(engine_path),
            log_path=None if log_path is None else Path(log_path),
            compute_capabilities=tuple(compute_capabilities),
            tf32=tf32,
        )
    )


def build_request(request: BuildRequest) -> BuildResult:
    if request.layer_info_path is not None:
        raise InputError("TensorRT-RTX cannot export layer information without a GPU; its kernel list is in the log")
    if not available():
        raise MissingBackend(f"{_TITLE} is not installed: {INSTALL}")
    return build_in_child(MODULES, request, backend="tensorrt-rtx", title=_TITLE, install=INSTALL, idle_limit_s=_IDLE_S)
