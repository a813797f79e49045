"""What `scan` says of scales of quantisers: they stand for what they make, and no training makes them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise.core.notes import NoteKind
from halfwise.verbs.scan import scan
from tests.models.build import model, node, value, weight
from tests.models.quantised import whole
from tests.support.messages import kinds

LOWEST = float(np.finfo(np.float32).min)


def masked(kind: int, zero: int, number: int, steps: int) -> onnx.ModelProto:
    """Scores and a mask, each and their sum quantised, as quantisers do that look at all tensors alike."""
    held = [
        weight("fine", np.float32(0.05)),
        weight("coarse", np.float32(-LOWEST / steps)),
        weight("sums", np.float32(-LOWEST / steps)),
        whole("zero", np.array(0), kind),
        whole("top", np.array(zero), kind),
        whole("mask", np.array([[number, zero, zero, zero]]), kind),
    ]
    nodes = [
        node("QuantizeLinear", "x fine zero", "xq"),
        node("DequantizeLinear", "xq fine zero", "xd"),
        node("DequantizeLinear", "mask coarse top", "m"),
        node("Add", "xd m", "scores"),
        node("QuantizeLinear", "scores sums top", "sq"),
        node("DequantizeLinear", "sq sums top", "sd"),
        node("Softmax", "sd", "y", axis=-1),
    ]
    return model(nodes, [value("x", shape=(2, 4))], [value("y", shape=(2, 4))], held, opset=21, ir_version=10)


@pytest.mark.parametrize(
    ("kind", "zero", "number", "steps"), [(TensorProto.UINT8, 255, 0, 255), (TensorProto.INT8, 0, -128, 128)]
)
def test_the_scale_of_a_mask_is_a_mask(kind: int, zero: int, number: int, steps: int) -> None:
    found = {each.rule: each for each in scan(masked(kind, zero, number, steps)).findings}
    assert "HW104" not in found
    assert found["HW111"].numbers["nodes"] == ["n_scores"]
    assert found["HW111"].numbers["value"] == pytest.approx(LOWEST)


def test_a_mask_is_followed_through_quantisers() -> None:
    held = [weight("fine", np.float32(0.05)), weight("low", np.float32(LOWEST)), weight("coarse", np.float32(1.33e36))]
    held.append(whole("zero", np.array(0), TensorProto.INT8))
    nodes = [
        node("Where", "c x low", "m"),
        node("QuantizeLinear", "m coarse zero", "q"),
        node("DequantizeLinear", "q coarse zero", "d"),
        node("Softmax", "d", "y", axis=-1),
    ]
    ends = [value("x", shape=(2, 4)), value("c", TensorProto.BOOL, (2, 4))], [value("y", shape=(2, 4))]
    found = {each.rule for each in scan(model(nodes, *ends, held, opset=21, ir_version=10)).findings}
    assert "HW113" in found and "HW104" not in found


@pytest.mark.parametrize("scale", [1e-9, 1e6])
def test_no_training_is_advised_for_scales(scale: float) -> None:
    held = [whole("w", np.full((4, 4), 3), TensorProto.INT8), weight("s", np.float32(scale))]
    nodes = [node("DequantizeLinear", "w s", "v"), node("MatMul", "x v", "y")]
    given = model(nodes, [value("x", shape=(2, 4))], [value("y", shape=(2, 4))], held, opset=21, ir_version=10)
    result = scan(given)
    assert {each.rule for each in result.findings} & {"HW102", "HW104"}
    decays = {NoteKind.TRAIN_MORE_DECAY, NoteKind.TRAIN_LESS_DECAY, NoteKind.TRAIN_NO_DECAY}
    assert not decays.intersection(kinds(result.training))
