"""HW413: an activation that reads what overflows becomes a product with a gate, which powers of two pass."""

from __future__ import annotations

from typing import Any

import pytest

from halfwise import fix
from halfwise.repair.activation_steps import ACTIVATION_STEPS
from tests.models.build import node
from tests.models.contrib_cases import DOMAIN
from tests.support.gated import block, feeds
from tests.support.repairing import effect

OPSET = 24  # of Swish
OWN = {"domain": DOMAIN}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Gelu": ("Gelu", "a", {}),
    "Gelu by tanh": ("Gelu", "a", {"approximate": "tanh"}),
    "HardSwish": ("HardSwish", "a", {}),
    "Mish": ("Mish", "a", {}),
    "Swish": ("Swish", "a", {"alpha": 0.9}),
    "ONNX Runtime's Gelu": ("Gelu", "a", OWN),
    "BiasGelu": ("BiasGelu", "a b1", OWN),
    "FastGelu": ("FastGelu", "a", OWN),
    "FastGelu with a bias": ("FastGelu", "a b1", OWN),
    "QuickGelu": ("QuickGelu", "a", OWN),
    "QuickGelu of its own slope": ("QuickGelu", "a", {"alpha": 1.3, **OWN}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_product_is_what_the_operator_gives(case: str) -> None:
    """In loud channels and in others, where a gate is neither 0 nor 1."""
    op, read, attributes = CASES[case]
    found = effect(ACTIVATION_STEPS, block([node(op, read, "h", **attributes)], opset=OPSET), feeds())
    assert len(found.repairs) == 1 and op not in found.ops()
    assert found.deviation < 1e-6


@pytest.mark.parametrize("case", CASES)
def test_what_fp16_holds_is_left_alone(case: str) -> None:
    op, read, attributes = CASES[case]
    proto = block([node(op, read, "h", **attributes)], loud=3e3, opset=OPSET)
    assert effect(ACTIVATION_STEPS, proto, feeds()).repairs == ()


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_no_node_stays_in_fp32(case: str, gated: bool) -> None:
    op, read, attributes = CASES[case]
    result = fix(block([node(op, read, "h", **attributes)], gated=gated, opset=OPSET), feeds())
    assert result.met and result.fp32_nodes == ()
    assert {each.rule for each in result.plan.repairs} == {"HW401", "HW413"}


def test_what_no_gate_makes_is_left_alone() -> None:
    assert effect(ACTIVATION_STEPS, block([node("Elu", "a", "h")]), feeds()).repairs == ()
