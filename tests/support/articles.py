"""The files that the authors of five articles had in hand when FP16 went wrong, made from the examples' models."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.support.paths import ROOT

__all__ = ["box_regression", "fused_attention", "subnormal_weights", "swallowed_layernorm", "tracker"]

_HALF = "Row major linear FP16"


def _example(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "examples"))


def _moved(made: Callable[[], Path], path: Path) -> Path:
    path.write_bytes(made().read_bytes())
    return path


def _samples(module: ModuleType, folder: Path) -> Path:
    folder.mkdir()
    for index, feed in enumerate(module.inputs()[:4]):
        np.savez(folder / f"{index}.npz", **feed)
    return folder


def _banner(version: str, command: str) -> str:
    return f"&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] # trtexec {command}\n"


def _line(text: str, severity: str = "I", trt: bool = False) -> str:
    return f"[02/03/2025-10:11:12] [{severity}] {'[TRT] ' if trt else ''}{text}\n"


def _tensor(name: str, shape: list[int]) -> dict[str, Any]:
    return {"Name": name, "Location": "Device", "Dimensions": shape, "Format/Datatype": _HALF}


def subnormal_weights(folder: Path) -> list[Path]:
    """A T4 with 10.0.1: 111 subnormal weights and 4 below the smallest, and layers forced to FP32 in vain."""
    module = _example("subnormal_weights")
    flags = "--onnx=t4.onnx --fp16 --precisionConstraints=obey --layerPrecisions=/mix/MatMul:fp32 --verbose"
    log = _banner("100001", flags) + _line("Selected Device: Tesla T4") + _line("Compute Capability: 7.5")
    log += _line("Precision: FP32+FP16 (obey precision constraints)")
    log += _line("- 111 weights are affected by this issue: Detected subnormal FP16 values.", "W", True)
    log += _line(
        "- 4 weights are affected by this issue: Detected values less than smallest positive FP16 subnormal value and "
        "converted them to the FP16 minimum subnormalized value.", "W", True,
    )  # fmt: skip
    (folder / "build.log").write_text(log)
    return [_moved(module.model, folder / "t4.onnx"), folder / "build.log", _samples(module, folder / "samples")]


def swallowed_layernorm(folder: Path) -> list[Path]:
    """An A100 with 8.6.1: the norm's layers were set to FP32, and one region holds them all."""
    module = _example("swallowed_layernorm")
    model = _moved(module.model, folder / "block.onnx")
    asked = ",".join(f"/norm/{op}:fp32" for op in ("ReduceMean", "Sub", "Pow", "ReduceMean_1", "Sqrt", "Div"))
    log = _banner("8601", f"--onnx=block.onnx --fp16 --precisionConstraints=obey --layerPrecisions={asked}")
    log += _line("Selected Device: NVIDIA A100-SXM4-40GB") + _line("Compute Capability: 8.0")
    log += _line("Precision: FP32+FP16 (obey precision constraints)")
    (folder / "build.log").write_text(log)
    return [model, folder / "build.log", module.engine_layers(model)]


def fused_attention(folder: Path) -> list[Path]:
    """10.0.0 on an A100: every layer matched by itself, and the engine's attention is one kernel."""
    module = _example("fused_attention")
    log = _banner("100000", "--onnx=block.onnx --fp16") + _line("Selected Device: NVIDIA A100-SXM4-40GB")
    log += _line("Compute Capability: 8.0") + _line("Precision: FP32+FP16")
    (folder / "build.log").write_text(log)
    kernel = {
        "Name": "_gemm_mha_v2_myl0_3",
        "LayerType": "kgen",
        "Inputs": [_tensor("q", [1, 4, 64, 16]), _tensor("k", [1, 4, 16, 64]), _tensor("v", [1, 4, 64, 16])],
        "Outputs": [_tensor("o", [1, 4, 64, 16])],
        "TacticName": "_gemm_mha_v2_0xcbed18b2829f40a7c0b6e2b9ad0ae4a1",
        "Metadata": "[ONNX Layer: /attn/MatMul]\x1e[ONNX Layer: /attn/Softmax]\x1e[ONNX Layer: /attn/MatMul_1]",
    }
    (folder / "layers.json").write_text(json.dumps({"Layers": [kernel], "Bindings": ["tokens", "out"]}))
    return [_moved(module.model, folder / "block.onnx"), folder / "build.log", folder / "layers.json"]


def tracker(folder: Path) -> list[Path]:
    """The whole tracker and frames for it; each part matched by itself."""
    module = _example("tracker_attention")
    return [_moved(module.model, folder / "tracker.onnx"), _samples(module, folder / "frames")]


def box_regression(folder: Path) -> list[Path]:
    """The retrained detector, new data, and a command whose layer names come from another tool."""
    module = _example("box_regression")
    script = (
        "trtexec --onnx=detector.onnx --fp16 --precisionConstraints=obey \\\n --layerPrecisions='bbox_head.*:fp32'\n"
    )
    (folder / "build.sh").write_text("#!/bin/sh\n" + script)
    model = _moved(module.model, folder / "detector.onnx")
    return [model, _samples(module, folder / "images"), folder / "build.sh"]
