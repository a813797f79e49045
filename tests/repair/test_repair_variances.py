"""HW401 where a BatchNormalization has variances beyond FP16: epsilon and the scale take a power of two back."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.repair.rescale import RESCALE
from tests.models.build import model, node, value, weight
from tests.support.repairing import effect
from tests.support.rescaled import normal, rows

UNITS = np.float32([700, 0.3, 1, 30, 2000, 5, 0.1, 90])  # of eight features


def _raw(loudest: float = 1.0, epsilon: float | None = 1e-5, **given: Any) -> onnx.ModelProto:
    """What is read as it was measured, and brought to one size by a norm."""
    attributes = given | ({} if epsilon is None else {"epsilon": epsilon})
    nodes = [node("BatchNormalization", "x g b m v", "n", **attributes), node("MatMul", "n w", "y")]
    units = UNITS * np.float32(loudest)
    constants = {"g": normal(1, 8), "b": normal(2, 8), "m": normal(3, 8) * units, "v": units**2}
    weights = [weight(name, array) for name, array in constants.items()] + [weight("w", normal(5, 8, 8))]
    return model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], weights)


@pytest.mark.parametrize("epsilon", [1e-3, 0.0, None])
def test_raw_features_are_normalised_in_fp16(epsilon: float | None) -> None:
    found = effect(RESCALE, _raw(epsilon=epsilon), [{"x": each["x"] * UNITS} for each in rows(3, 4, 8)])
    assert found.before > 1 > found.after and found.bit_identical
    (repair,) = found.repairs
    (power,) = (edit["power"] for edit in repair.parameters["epsilons"])
    norm = found.repaired.node_by_name["n_n"]
    assert norm.attributes["epsilon"].as_float() == np.float32(1e-5 if epsilon is None else epsilon) * 4.0**power
    assert 2.0**13 <= norm.inputs[4].const_value.numpy().max() <= 2.0**15


@pytest.mark.parametrize("proto", [_raw(2.0**-6), _raw(2.0**52), _raw(epsilon=1e-37)], ids=["calm", "wild", "epsilon"])
def test_what_fits_or_would_leave_the_normal_numbers_stays(proto: onnx.ModelProto) -> None:
    found = effect(RESCALE, proto, rows(2, 4, 8))
    assert found.bit_identical
    assert not any(edit["slot"] == 4 for repair in found.repairs for edit in repair.parameters["constants"])
