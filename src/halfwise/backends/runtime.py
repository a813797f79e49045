"""ONNX Runtime's execution providers as backends. On a GPU each model runs in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halfwise.backends.backend import BackendOptions, BackendRun, Feed

__all__ = ["RuntimeBackend"]

_CAUTIONS = {
    "ort-cpu": (
        "ONNX Runtime's CPU provider computes FP16 in FP32 and drops roundings between nodes: what is good there may "
        "overflow or lose digits on a GPU; take ort-cuda on a machine with an NVIDIA GPU, or verify without a backend",
    ),
    "ort-tensorrt": (
        "whether TensorRT keeps the model's own types is up to the provider: up to TensorRT 10 it may not build "
        "strongly typed; the backend tensorrt does",
    ),
}


@dataclass(frozen=True)
class RuntimeBackend:
    """One of `ort-cpu`, `ort-cuda`, `ort-tensorrt` and `ort-rtx`."""

    name: str
    options: BackendOptions

    @property
    def cautions(self) -> tuple[str, ...]:
        return _CAUTIONS.get(self.name, ())

    def run(self, model: Path, feeds: Sequence[Feed]) -> BackendRun:
        if self.name == "ort-cpu":
            from halfwise.backends.runtime_session import run_model

            return run_model(self.name, model, feeds, self.options)
        from halfwise.backends.child import run_in_child

        return run_in_child("halfwise.backends.runtime_session:serve", self.name, model, feeds, self.options)
