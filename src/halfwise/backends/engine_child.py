"""The child process of `engine`."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from halfwise.backends.backend import BackendRun
from halfwise.backends.engine_run import run_engine
from halfwise.backends.exchange import Request, serve
from halfwise.core.errors import MissingBackend
from halfwise.emulation.cuda_driver import open_cuda

__all__ = ["main"]

_MODULES = {
    "tensorrt": ("tensorrt", "tensorrt_bindings"),
    "rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}


def main(request_file: str) -> None:
    serve(request_file, _run)


def _run(request: Request) -> BackendRun:
    if not request.options.tf32:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    return run_engine(
        _module(request.backend),
        open_cuda(request.options.device),
        request.backend,
        request.model.read_bytes(),
        request.feeds(),
        request.options,
    )


def _module(backend: str) -> Any:
    why = "not installed"
    for name in _MODULES[backend]:
        try:
            return import_module(name)
        except (ImportError, OSError) as error:
            why = str(error)
    raise MissingBackend(f"{backend} is not usable here: {why}")
