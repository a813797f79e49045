"""Weights that decay has left next to nothing of become 0 in an exact repair: also where they alone make an answer of
FP32, or decide how a sum is rounded, as long as that is nothing beside the others."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import halfwise
from tests.models.build import model, node, value, weight
from tests.support.rescaled import normal, rows

TIE = 1 + 2.0**-12  # its square lies in the middle between two FP32 numbers


def _decayed(least: float, *, alone: bool = False) -> onnx.ModelProto:
    """Every other hidden unit is in a unit of 2^-26; `alone`: the first half of the outputs reads decayed weights."""
    units = np.resize(np.exp2(np.float32([-26, 0])), 8).astype(np.float32)
    second = normal(2, 8, 8) / units[:, None]
    second[1, 1:3] = least
    second[3, 2] = TIE
    if alone:
        second[:, :4] = least * normal(3, 8, 4)
    nodes = [node("MatMul", "x w1", "a"), node("Relu", "a", "b"), node("MatMul", "b w2", "c")]
    nodes += [node("Slice", f"c from{i} to{i} last", f"y{i}") for i in range(2)]
    ends = [(f"from{i}", 4 * i) for i in range(2)] + [(f"to{i}", 4 * i + 4) for i in range(2)] + [("last", 1)]
    weights = [weight("w1", np.diag(units)), weight("w2", second)]
    weights += [weight(name, np.array([number], np.int64)) for name, number in ends]
    outputs = [value(f"y{i}", shape=(8, 4)) for i in range(2)]
    return model(nodes, [value("x", shape=(8, 8))], outputs, weights)


@pytest.mark.parametrize("least", [1e-39, 1e-42])
@pytest.mark.parametrize("other", [0.0, TIE])
def test_what_shows_where_other_units_are_silent_is_let_go(least: float, other: float) -> None:
    seldom = np.float32([-1, 1, -1, other, -1, -1, -1, -1])
    feeds = [{"x": np.vstack([each["x"][:7], seldom])} for each in rows(8, 8, 8)]
    fixed = halfwise.fix(_decayed(least), feeds)
    assert fixed.met and not fixed.fp32_nodes
    assert [repair.rule for repair in fixed.plan.repairs] == ["HW401"]
    assert "become 0" in fixed.plan.repairs[0].algebra


@pytest.mark.parametrize("least", [1e-30, 1e-39])
def test_an_output_that_is_made_of_them_is_kept(least: float) -> None:
    fixed = halfwise.fix(_decayed(least, alone=True), rows(8, 8, 8))
    assert fixed.met and "n_c" in fixed.fp32_nodes
    assert not any("become 0" in repair.algebra for repair in fixed.plan.repairs)
