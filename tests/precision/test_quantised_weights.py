"""Weights that are quantised in the model: typed as the file has them where that changes no step, in FP32 elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.emulation.emulate import Emulator
from halfwise.model.fp32_model import fp32_model
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.models.build import model, node, value, weight

Array = np.ndarray[Any, Any]
TYPES = {np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.float32): TensorProto.FLOAT}
STEP = 0.0133


def table(dtype: Any) -> Array:
    """Values that lie on halves of the step, where a rounding of the quotient decides, and others."""
    halves = (np.arange(-32, 32) + 0.5) * np.float32(np.float16(STEP))
    return np.stack([halves, np.random.default_rng(1).standard_normal(64)]).T.astype(dtype)


def given(weights: Any, scale: Any) -> onnx.ModelProto:
    """A product with a weight that the model quantises, as ModelOpt writes it."""
    kept = [weight("w", table(weights)), weight("s", scale(STEP)), weight("z", np.int8(0))]
    quantised = "w" if weights is scale else "wide"
    nodes = [
        *([] if weights is scale else [node("Cast", "w", "wide", to=TYPES[np.dtype(scale)])]),
        node("QuantizeLinear", f"{quantised} s z", "q"),
        node("DequantizeLinear", "q s z", "v"),
        node("MatMul", "x v", "y"),
    ]
    kind = TYPES[np.dtype(scale)]
    return model(nodes, [value("x", kind, (3, 64))], [value("y", kind, (3, 2))], kept, opset=19, ir_version=10)


def test_a_weight_of_an_fp16_file_is_quantised_in_fp16() -> None:
    sites = Sites(fp32_model(load(given(np.float16, np.float16))))
    assert not sites.pinned
    all_narrow = Assignment.all_narrow(sites)
    written = typed_proto(all_narrow)
    onnx.checker.check_model(written, full_check=True)
    assert {each.name: each.data_type for each in written.graph.initializer} == {
        "w": TensorProto.FLOAT16,
        "s": TensorProto.FLOAT16,
        "z": TensorProto.INT8,
    }
    step = np.float32(np.float16(STEP))
    steps = np.clip(np.rint(table(np.float16).astype(np.float64) / np.float64(step)), -128, 127)
    x = np.random.default_rng(2).standard_normal((3, 64)).astype(np.float16).astype(np.float32)
    answer = x.astype(np.float64) @ (steps * step).astype(np.float16).astype(np.float64)
    found = Emulator().session(all_narrow).run({"x": x})["y"]
    assert np.allclose(found, answer, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("weights", "scale", "fmt"),
    [
        (np.float32, np.float32, Format.FP16),
        (np.float16, np.float32, Format.FP16),
        (np.float16, np.float16, Format.BF16),
    ],
)
def test_any_other_weight_is_quantised_in_fp32(weights: Any, scale: Any, fmt: Format) -> None:
    sites = Sites(fp32_model(load(given(weights, scale))), fmt)
    assert [(site.op, site.pinned.kind) for site in sites.pinned if site.pinned] == [
        ("QuantizeLinear", NoteKind.QUANTISES_WEIGHT)
    ]
