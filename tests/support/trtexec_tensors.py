"""Writes the tensors inside an "engine" and its bindings as trtexec does with --saveAllDebugTensors and so on."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["binding_file", "save_bindings", "save_tensors"]

_TYPES = {"float32": ("FLOAT", "fp32"), "float16": ("HALF", "fp16"), "int64": ("INT64", "int64")}


def _safe(text: str) -> str:
    safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-,") else "_" for letter in text)
    return safe if len(safe) <= 150 else safe[:73] + "..." + safe[-73:]


def binding_file(name: str, array: NDArray[Any], side: str) -> str:
    dims = ".".join(map(str, array.shape))
    return _safe(f"{name}.{side}.{dims}.{_TYPES[array.dtype.name][1]}.raw")


def save_bindings(folder: Path, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]) -> None:
    for side, arrays in (("input", inputs), ("output", outputs)):
        for name, array in arrays.items():
            (folder / binding_file(name, array, side)).write_bytes(array.tobytes())


def save_tensors(folder: Path, tensors: Mapping[str, NDArray[Any]], formats: Collection[str], runs: int = 1) -> None:
    """`formats`: of summary, numpy, raw; a run after the first gives other values."""
    told, number = [], 0
    for run in range(runs):
        for name, array in tensors.items():
            values, files = array + array.dtype.type(run), {}
            if "raw" in formats:
                files["raw"] = _safe(f"{number:04}_{name}.raw")
                (folder / files["raw"]).write_bytes(values.tobytes())
            if "numpy" in formats:
                files["numpy"] = _safe(f"{number:04}_{name}.npy")
                np.save(folder / files["numpy"], values)
            told.append(_summary(name, values, files))
            number += 1
    if "summary" in formats:
        about = {"title": "Tensor Summary Report", "engine_name": "model.onnx", "command_line": "trtexec"}
        (folder / "tensor_summary.json").write_text(json.dumps({"metadata": about, "tensors": told}))


def _summary(name: str, values: NDArray[Any], files: Mapping[str, str]) -> dict[str, Any]:
    plain = values[~np.isnan(values)].astype(np.float64)
    numbers = {"min": plain.min(), "max": plain.max(), "avg": values.astype(np.float64).mean()}
    stated: dict[str, Any] = {
        key: float(f"{each:.6g}") if np.isfinite(each) else str(each) for key, each in numbers.items()
    }
    told = {"name": name, "shape": list(values.shape), "type": _TYPES[values.dtype.name][0]}
    return {**told, "statistics": {**stated, "elements": "0, ..., 0"}, **({"files": dict(files)} if files else {})}
