"""Which operators choose: a threshold at which both sides are equal does not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from halfwise.model.model import load
from halfwise.search.jumps import jumping
from tests.models.build import model, node, value, weight
from tests.models.expert_cases import expert_cases

SOFTPLUS = [node("Softplus", "h", "other")]  # as PyTorch's exporter writes it, beside a threshold at 20
LEAKY = [node("Mul", "h slope", "other")]
STEP = [node("Mul", "h two", "other")]
STRANGE = [node("Mul", "h x", "other")]  # hangs on more than what is compared


@pytest.mark.parametrize(
    ("compared", "other", "jumps"),
    [
        ("Greater h twenty", SOFTPLUS, False),
        ("Less twenty h", SOFTPLUS, False),
        ("Greater h one", SOFTPLUS, True),
        ("GreaterOrEqual h zero", LEAKY, False),
        ("GreaterOrEqual h one", LEAKY, True),
        ("Greater h zero", STEP, False),
        ("Greater h twenty", STEP, True),
        ("Greater h zero", STRANGE, True),
        ("Greater h x", SOFTPLUS, True),
    ],
)
def test_a_threshold_at_which_both_sides_are_equal_chooses_nothing(
    compared: str, other: list[onnx.NodeProto], jumps: bool
) -> None:
    op, left, right = compared.split()
    nodes = [node("Mul", "x two", "h"), node(op, f"{left} {right}", "high"), *other, node("Where", "high h other", "y")]
    numbers = {"one": 1.0, "two": 2.0, "twenty": 20.0, "zero": 0.0, "slope": 0.1}
    weights = [weight(name, np.float32(number)) for name, number in numbers.items()]
    made = load(model(nodes, [value("x")], [value("y")], weights))
    assert bool(list(jumping(made))) is jumps


def test_a_threshold_that_is_told_or_that_a_mask_takes_chooses() -> None:
    asked = [node("Greater", "x twenty", "high"), node("Softplus", "x", "soft"), node("Where", "high x soft", "y")]
    also = [*asked, node("Cast", "high", "z", to=onnx.TensorProto.FLOAT)]
    weights = [weight("twenty", np.float32(20))]
    for nodes, outputs in (
        (also, [value("y"), value("z")]),
        (asked, [value("y"), value("high", onnx.TensorProto.BOOL)]),
    ):
        made = load(model(nodes, [value("x")], outputs, weights))
        assert [each.op_type for each in jumping(made)] == ["Greater"]


def test_experts_in_one_operator_are_chosen() -> None:
    (case,) = (each for each in expert_cases() if each.name == "experts")
    assert [each.op_type for each in jumping(load(case.proto()))] == ["MoE"]
