"""HW401 past comparisons: which of two is larger is so of their multiples, too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.repair.rescale import RESCALE
from tests.models.build import model, node, value, weight
from tests.support.repairing import effect

SIZE, LOUD = 16, 3e5


def normal(seed: int, *shape: int, scale: float = 1.0) -> NDArray[np.float32]:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def compared(how: str, with_: str) -> onnx.ModelProto:
    """Of two loud layers a norm of the one where it compares so, else of the other."""
    nodes = [node("MatMul", "x w", "loud"), node("MatMul", "x v", "other"), node(how, f"loud {with_}", "chosen"),
             node("LayerNormalization", "loud g", "one"), node("LayerNormalization", "other g", "two"),
             node("Where", "chosen one two", "y")]  # fmt: skip
    weights = [weight("w", normal(1, SIZE, SIZE, scale=LOUD)), weight("v", normal(2, SIZE, SIZE, scale=LOUD)),
               weight("g", normal(3, SIZE)), weight("zero", np.float32(0)),
               weight("much", np.float32(LOUD))]  # fmt: skip
    used = [each for each in weights if each.name not in {"zero", "much"} - {with_}]
    return model(nodes, [value("x", shape=(4, SIZE))], [value("y", shape=(4, SIZE))], used, opset=18)


FEEDS = [{"x": normal(seed, 4, SIZE)} for seed in range(10, 14)]


@pytest.mark.parametrize("how", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
@pytest.mark.parametrize("with_", ["zero", "other"])
def test_what_is_compared_is_scaled(how: str, with_: str) -> None:
    found = effect(RESCALE, compared(how, with_), FEEDS)
    assert found.before > 1 > found.after and found.bit_identical


def test_two_that_are_compared_have_one_power() -> None:
    (repair,) = effect(RESCALE, compared("Less", "other"), FEEDS).repairs
    powers = {edit["node"]: np.unique(edit["powers"]).tolist() for edit in repair.parameters["constants"]}
    assert len(powers["n_loud"]) == 1 and powers["n_loud"] == powers["n_other"]


def test_what_is_compared_with_another_number_stays_as_it_is() -> None:
    found = effect(RESCALE, compared("Less", "much"), FEEDS)
    assert found.before > 1 < found.after and found.bit_identical


def test_numbers_that_are_no_floats_are_left_alone() -> None:
    proto = compared("Less", "other")
    proto.graph.node.insert(0, node("Cast", "x", "whole", to=TensorProto.INT64))
    proto.graph.node[3].input[:] = ["whole", "whole"]
    found = effect(RESCALE, proto, FEEDS)
    assert found.before > 1 > found.after and found.bit_identical
