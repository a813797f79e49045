"""Builds an ONNX model with TensorRT proper, 8.6 to 11, where the user has it and a GPU; in a child process.

Strong typing (from 9.1; the only one from 11) builds a typed model as it is. Weak typing (up to 10.16) lets TensorRT
use FP16 and constrains the layers of chosen ONNX nodes, and their outputs, to FP32; layers are found by the node they
came from, never by name. Which of these a release has is asked of the imported module.

Limits: written against the documented API and checked against the names in the released bindings (8.6.1, 10.0.1,
10.3.0, 10.13.3, 10.16.1, 11.0.0, 11.4.0) without a GPU; never run with the real library. For 9.x no bindings were found
to check against, and 8.4 and 8.5 are untried: use `trtexec_process` there.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from halfwise.compiler.build import BuildRequest, BuildResult, Profiles, Typing, installed, normalised
from halfwise.compiler.build_in_child import build_in_child
from halfwise.core.errors import MissingBackend

__all__ = ["INSTALL", "MODULES", "available", "build", "build_request"]

MODULES = ("tensorrt", "tensorrt_bindings")
INSTALL = "pip install tensorrt (it also needs an NVIDIA GPU and its driver)"


def available() -> bool:
    """Whether TensorRT is installed; asks without importing it, and does not look for a GPU."""
    return installed(MODULES)


def build(
    model_path: str | PathLike[str],
    *,
    profiles: Profiles | None = None,
    time_limit_s: float = 600.0,
    engine_path: str | PathLike[str] | None = None,
    log_path: str | PathLike[str] | None = None,
    layer_info_path: str | PathLike[str] | None = None,
    typing: Typing = "strong",
    fp32_nodes: Sequence[str] = (),
    tf32: bool = True,
) -> BuildResult:
    """Parse and build `model_path`; as `rtx.build`, and further:

    `layer_info_path` gets the engine inspector's JSON. With `typing="weak"` the model is FP32, TensorRT may use FP16,
    and must obey FP32 for `fp32_nodes`; the result says which layers were constrained and which nodes had none.
    """
    return build_request(
        BuildRequest(
            model_path=Path(model_path),
            profiles=normalised(profiles),
            time_limit_s=time_limit_s,
            engine_path=None if engine_path is None else Path(engine_path),
            log_path=None if log_path is None else Path(log_path),
            layer_info_path=None if layer_info_path is None else Path(layer_info_path),
            typing=typing,
            fp32_nodes=tuple(fp32_nodes),
            tf32=tf32,
        )
    )


def build_request(request: BuildRequest) -> BuildResult:
    if not available():
        raise MissingBackend(f"TensorRT is not installed: {INSTALL}")
    return build_in_child(MODULES, request, backend="tensorrt", title="TensorRT", install=INSTALL)
