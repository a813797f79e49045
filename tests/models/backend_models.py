"""A model in FP16 to run on backends, and GPUs to pretend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from halfwise.emulation.cuda_driver import Gpu
from tests.models.build import model, node, value, weight

H200 = Gpu("NVIDIA H200", "9.0", "13.0", "580.95.05")
L4 = Gpu("NVIDIA L4", "8.9", "13.0", "580.95.05")


def typed_model(path: Path) -> Path:
    """x, cast, times w in FP16, its shape taken and used, cast back."""
    nodes = [
        node("Cast", "x", "h", to=TensorProto.FLOAT16),
        node("Mul", "h w", "m"),
        node("Shape", "m", "s"),
        node("Reshape", "m s", "r"),
        node("Cast", "r", "y", to=TensorProto.FLOAT),
    ]
    weights = [weight("w", np.full(4, 0.5, np.float16))]
    onnx.save(model(nodes, [value("x", shape=("n", 4))], [value("y", shape=("n", 4))], weights), path)
    return path
