"""The child process of `runtime`: its environment is its own, so that TF32 can be switched off for every library."""

from __future__ import annotations

import os

from halfwise.backends.backend import BackendRun
from halfwise.backends.exchange import Request, serve

__all__ = ["main"]


def main(request_file: str) -> None:
    serve(request_file, _run)


def _run(request: Request) -> BackendRun:
    if not request.options.tf32:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # what cuBLAS, cuDNN and TensorRT heed, whatever a provider asks for
    from halfwise.backends.runtime_session import run_model

    return run_model(request.backend, request.model, request.feeds(), request.options)
