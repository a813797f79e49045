"""A profile that is learned from a simulated GPU, and a model that it judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from halfwise.emulation.probes import PROBES, Form
from halfwise.verbs.prove import prove
from tests.support.simulated_gpu import SimulatedGpu

__all__ = ["CHOICE", "NAMES", "SOME", "machine", "wide_product"]

NAMES = tuple(
    """exact matmul 64x64x64; exact matmul 24x45x11; exact gemm 64x64x64, bias; exact mean of 48; softmax over 10;
    layer norm over 64; fused matmul and bias; product and residual over 64""".replace("\n   ", "").split("; ")
)
SOME: tuple[Form, ...] = tuple(form for form in PROBES if form.name in NAMES)
CHOICE = {
    "MatMul": "wide",
    "Gemm": "fp16-sums-16",
    "ReduceMean": "sum-stored",
    "Softmax": "steps",
    "LayerNormalization": "affine-after",
    "fusion:biased-product": "wide",
    "fusion:residual": "apart",
}


def machine(folder: Path, name: str = "machine.json", **other: str) -> Path:
    return Path(str(prove(SimulatedGpu({**CHOICE, **other}, SOME), out=folder / name, forms=SOME).path))


def wide_product(path: Path, length: int = 512) -> Path:
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.random((length, 16)).astype(np.float32), "w")
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, length])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16])]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "g", values, made, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
