"""What a gate multiplies carries powers of two where it overflows, and the gate reads it as it was."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from halfwise import fix
from halfwise.repair.rescale import RESCALE
from tests.models.build import node, value
from tests.support.gated import INNER, block, feeds
from tests.support.repairing import Effect, effect

SILU = [node("Sigmoid", "a", "gate"), node("Mul", "a gate", "h")]
MISH = [node("Softplus", "a", "soft"), node("Tanh", "soft", "gate"), node("Mul", "gate a", "h")]
CUBIC = [node("Mul", "a a", "a2"), node("Mul", "a a2", "a3")]  # as SigLIP's exporter writes it
POWER = [node("Pow", "a three", "a3")]  # as T5's does
TANH = [node("Mul", "a3 c", "bent"), node("Add", "a bent", "sum"), node("Mul", "sum r", "in"), node("Tanh", "in", "t"),
        node("Add", "t one", "gate"), node("Mul", "a half", "a/2"), node("Mul", "a/2 gate", "h")]  # fmt: skip
ERF = [node("Div", "a root", "in"), node("Erf", "in", "e"), node("Add", "e one", "gate"), node("Mul", "a gate", "2h"),
       node("Mul", "2h half", "h")]  # fmt: skip
FORMS = {"silu": SILU, "mish": MISH, "gelu of products": [*CUBIC, *TANH], "gelu of a power": [*POWER, *TANH]}


def restored(found: Effect) -> int:
    """Factors that were put in."""
    return found.ops().count("Mul") - [node.op_type for node in found.model.nodes].count("Mul")


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_one_factor_is_enough_in_front_of_a_gate(form: str, gated: bool) -> None:
    proto = block(FORMS[form], gated=gated)
    found = effect(RESCALE, proto, feeds())
    assert found.before > 1 > found.after and found.bit_identical
    assert restored(found) == 1
    fixed = fix(proto, feeds())
    assert fixed.met and fixed.fp32_nodes == ()


def test_a_constant_in_front_of_a_gate_takes_the_power() -> None:
    found = effect(RESCALE, block(ERF), feeds())
    assert found.before > 1 > found.after and found.bit_identical
    assert restored(found) == 0


@pytest.mark.parametrize("form", FORMS)
def test_what_only_a_gate_loses_is_not_scaled(form: str) -> None:
    """The cube of 300 is infinite in FP16, where its tanh is 1."""
    found = effect(RESCALE, block(FORMS[form], loud=300.0), feeds())
    assert found.repairs == () and found.before < 1


def test_what_a_gate_reads_and_others_too_is_followed() -> None:
    """The sum in front of a tanh is an answer as well."""
    proto = block([*CUBIC, *TANH], loud=300.0)
    proto.graph.output.append(value("sum", shape=(1, 12, INNER)))
    found = effect(RESCALE, proto, feeds())
    assert found.bit_identical and found.before == found.after


@pytest.mark.parametrize("seed", range(40))
def test_any_gate_keeps_the_answer(seed: int) -> None:
    """Steps drawn at random between what overflows and gates, some of which others read as well."""
    rng, steps, held = np.random.default_rng(seed), list[onnx.NodeProto](), ["a"]
    for index in range(int(rng.integers(1, 6))):
        op, one, other = (str(rng.choice(each)) for each in (["Add", "Mul", "Neg", "Pow", "Div"], held, held))
        second = {"Neg": "", "Pow": "three", "Div": "root"}.get(op, str(rng.choice([other, "half", "one"])))
        steps.append(node(op, f"{one} {second}".strip(), f"s{index}"))
        held.append(f"s{index}")
    gate = str(rng.choice(["Sigmoid", "Tanh", "Erf"]))
    steps += [node(gate, held[-1], "gate"), node("Mul", f"gate {rng.choice([*held[:-1], 'a'])}", "h")]
    found = effect(RESCALE, block(steps, loud=1e5), feeds()[:3])
    assert found.bit_identical


def test_a_gate_that_is_lost_with_what_it_reads_is_left_alone() -> None:
    """x / (1 + |x|) is no number where x is infinite."""
    found = effect(RESCALE, block([node("Softsign", "a", "gate"), node("Mul", "a gate", "h")]), feeds())
    assert found.bit_identical and restored(found) == 0
