"""Runs typed models with ONNX Runtime's CUDA provider, TF32 off unless asked for, and says on what machine."""

from __future__ import annotations

import contextlib
import datetime
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

__all__ = ["cuda_session", "half", "machine", "placement", "prepare"]

Array = NDArray[Any]


def prepare() -> None:
    """Load CUDA's libraries from where Python packages keep them."""
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  brings the same libraries
    preload = getattr(ort, "preload_dlls", None)
    if preload is not None:
        preload()
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise SystemExit("this onnxruntime has no CUDA provider: install onnxruntime-gpu")


def machine() -> dict[str, str]:
    """What measured: GPU, driver, versions, date."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    found = {"gpu": name, "driver": driver, "onnxruntime": ort.__version__}
    try:
        import torch

        found["cuda"], found["cudnn"] = str(torch.version.cuda), str(torch.backends.cudnn.version())
    except ImportError:
        pass
    return {**found, "date": datetime.date.today().isoformat()}


def cuda_session(
    proto: onnx.ModelProto | str,
    *,
    fused: bool,
    tf32: bool = False,
    search: str = "EXHAUSTIVE",
    optimized: Path | None = None,
    profiled: Path | None = None,
    stream: int | None = None,
    graphs: bool = False,
) -> ort.InferenceSession:
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if fused else level.ORT_DISABLE_ALL
    options.log_severity_level = 4
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    if profiled is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profiled)
    cuda = {"use_tf32": "1" if tf32 else "0", "cudnn_conv_algo_search": search}
    if stream is not None:
        cuda.update(user_compute_stream=str(stream), do_copy_in_default_stream="1")
    if graphs:
        cuda["enable_cuda_graph"] = "1"
    content = proto if isinstance(proto, str) else proto.SerializeToString()
    return ort.InferenceSession(content, options, providers=[("CUDAExecutionProvider", cuda), "CPUExecutionProvider"])


def placement(proto: onnx.ModelProto, feed: Mapping[str, Array], *, fused: bool) -> dict[str, str]:
    """Which provider ran each kind of operator: `CUDA`, `CPU`, or both."""
    with tempfile.TemporaryDirectory() as folder:
        session = cuda_session(proto, fused=fused, profiled=Path(folder) / "profile")
        session.run(None, dict(feed))
        path = session.end_profiling()
        events = json.loads(Path(path).read_text(encoding="utf-8"))
        Path(path).unlink()
    seen: dict[str, Counter[str]] = {}
    for event in events:
        arguments = event.get("args", {})
        if event.get("cat") == "Node" and arguments.get("provider"):
            provider = arguments["provider"].removesuffix("ExecutionProvider")
            seen.setdefault(arguments["op_name"], Counter())[provider] += 1
    return {op: "+".join(sorted(providers)) for op, providers in seen.items()}


def half(session: ort.InferenceSession, feed: Mapping[str, Array]) -> dict[str, Array]:
    """The feed in the types that the session wants."""
    kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32}
    return {
        value.name: np.asarray(feed[value.name]).astype(kinds.get(value.type, feed[value.name].dtype), copy=False)
        for value in session.get_inputs()
    }
