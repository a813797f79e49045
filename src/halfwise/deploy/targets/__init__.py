"""The targets, one object each; a target is added here and asked about nowhere else."""

from __future__ import annotations

from halfwise.core.targets import RUNTIMES, Target
from halfwise.core.targets.runtimes import ONNX, ORT_CUDA, RTX, TENSORRT
from halfwise.deploy.targets.kind import Compile, TargetKind
from halfwise.deploy.targets.onnxruntime import OnnxRuntime
from halfwise.deploy.targets.plain import PlainTarget
from halfwise.deploy.targets.tensorrt import TensorRT
from halfwise.emulation import profiles

__all__ = ["KINDS", "Compile", "PlainTarget", "TargetKind", "kind_of", "register"]

KINDS: dict[str, TargetKind] = {
    kind.runtime.name: kind
    for kind in (
        OnnxRuntime(ONNX, profiles.STRICT, on_cpu=True),
        OnnxRuntime(ORT_CUDA, profiles.ORT_CUDA),
        TensorRT(TENSORRT, profiles.TENSORRT),
        TensorRT(RTX, profiles.TENSORRT),
    )
}


def register(kind: TargetKind) -> None:
    """Make a target known: by its name wherever a target is stated, and its profile wherever one is named."""
    RUNTIMES[kind.runtime.name] = kind.runtime
    profiles.PROFILES.setdefault(kind.profile.name, kind.profile)
    KINDS[kind.runtime.name] = kind


def kind_of(target: Target) -> TargetKind:
    return KINDS[target.runtime.name]
