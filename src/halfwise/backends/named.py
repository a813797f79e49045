"""Backends by the names that users give them."""

from __future__ import annotations

from pathlib import Path

from halfwise.backends.backend import Backend, BackendOptions, Installed
from halfwise.core.errors import InputError

__all__ = ["BACKENDS", "backend_named", "installed_backend"]

# What a user may ask for, and what it is.
BACKENDS = {
    "ort-cpu": "ONNX Runtime on the CPU (computes FP16 wider than a GPU does)",
    "ort-cuda": "ONNX Runtime's CUDA provider",
    "ort-tensorrt": "ONNX Runtime's TensorRT provider",
    "ort-rtx": "ONNX Runtime's TensorRT-RTX provider",
    "tensorrt": "a TensorRT engine",
    "rtx": "a TensorRT-RTX engine",
    "cmd:PROGRAM": "a program of yours, which runs the models of a folder anywhere",
    "saved:PATH": "outputs computed elsewhere: .npz files, Polygraphy's or trtexec's",
}


def backend_named(name: str, options: BackendOptions | None = None) -> Backend:
    """The backend of that name. Whether it can be used here shows when it runs."""
    options = options or BackendOptions()
    if name.startswith("saved:"):
        from halfwise.backends.saved import SavedBackend

        return SavedBackend(Path(name.removeprefix("saved:")))
    if name.startswith("cmd:"):
        from halfwise.backends.command import CommandBackend

        return CommandBackend(name.removeprefix("cmd:"), options)
    if name in ("ort-cpu", "ort-cuda", "ort-tensorrt", "ort-rtx"):
        from halfwise.backends.runtime import RuntimeBackend

        return RuntimeBackend(name, options)
    if name in ("tensorrt", "rtx"):
        from halfwise.backends.engine import EngineBackend

        return EngineBackend(name, options)
    raise InputError(f"there is no backend {name!r}; there are {', '.join(BACKENDS)}")


def installed_backend(name: str, options: BackendOptions | None = None) -> Backend:
    """The same, for what computes long before that runs: what is not installed is told now."""
    backend = backend_named(name, options)
    if isinstance(backend, Installed):
        backend.check_installed()
    return backend
