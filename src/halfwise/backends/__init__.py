"""What can run a model for real, behind one interface: ONNX Runtime, TensorRT engines, saved outputs."""

from __future__ import annotations

from halfwise.backends.backend import Backend, BackendFailure, BackendOptions, BackendRecord, BackendRun
from halfwise.backends.named import BACKENDS, backend_named

__all__ = ["BACKENDS", "Backend", "BackendFailure", "BackendOptions", "BackendRecord", "BackendRun", "backend_named"]
