"""Dead weights are information, tiny ones that matter are errors; what a typed file stores in place of more is told."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from halfwise.core.wording import percent
from halfwise.verbs.scan import ScanResult, scan
from tests.models.build import model, node, value
from tests.models.typed_graphs import FLOAT, HALF, tensor
from tests.support.scan_cases import of, rules

RNG = np.random.default_rng(0)


def matrices(*factors: float) -> onnx.ModelProto:
    """A chain of products, each weight of normal values times its factor."""
    nodes = [node("MatMul", f"t{i} w{i}", f"t{i + 1}") for i in range(len(factors))]
    held = [RNG.standard_normal((64, 64)).astype(np.float32) * np.float32(factor) for factor in factors]
    weights = [onnx.numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(held)]
    return model(nodes, [value("t0", shape=("n", 64))], [value(f"t{len(factors)}", shape=("n", 64))], weights)


def scanned(op: str, array: np.ndarray) -> ScanResult:  # type: ignore[type-arg]
    weights = [onnx.numpy_helper.from_array(array.astype(np.float32), "w")]
    return scan(model([node(op, "x w", "y")], [value("x", shape=(2, 64))], [value("y", shape=None)], weights))


def test_dead_weights_are_one_line_of_information() -> None:
    result = scan(matrices(1e-40, 1.0, 1e-30, 1e-41))
    assert rules(result) == ["HW107"]
    found = of(result, "HW107")
    assert (found.severity, found.numbers["count"], found.numbers["names"]) == ("info", 3, ["w0", "w2", "w3"])
    assert of(result, "HW101").numbers["tensors_harmful"] == 0
    assert len(found.message) < 120


@pytest.mark.parametrize("factor", [1e-8, 1e-9, 1e-12])
def test_tiny_weights_that_matter_are_errors(factor: float) -> None:
    result = scan(matrices(factor))
    assert [each.rule for each in result.findings if each.severity == "error"] == ["HW102"]


def test_a_divisor_is_never_dead() -> None:
    assert "HW107" not in rules(scanned("Div", np.full(64, 1e-39)))


def test_a_factor_meets_larger_values_than_a_matrix() -> None:
    tiny = np.full((64, 64), 1e-21)
    assert rules(scanned("MatMul", tiny)) == ["HW107"]
    assert rules(scanned("Mul", tiny[0])) == ["HW102"]


def test_dead_channels_do_not_decide_which_are_quiet() -> None:
    """Of most channels dead, the living ones are still the measure."""
    array = RNG.standard_normal((64, 64)) * 0.1
    array[:, :40] *= 1e-25
    array[:, 40] *= 1e-6
    found = of(scanned("MatMul", array), "HW103")
    assert found.numbers["channel_indices"] == [40] and found.numbers["channels_dead"] == 40


def test_a_change_of_any_size_is_told_in_few_digits() -> None:
    assert len(percent(1e33)) < 15 and percent(1e33).startswith("1e33")


def test_what_fp16_could_not_store() -> None:
    array = RNG.standard_normal((64, 64)).astype(np.float32)
    array[0, :3] = [np.inf, -np.inf, 65504.0]
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a k", "y")]
    clamped = np.where(np.eye(64) > 0, -65504.0, 1.0)
    held = [tensor("w", HALF, array), tensor("k", HALF, clamped)]
    result = scan(model(nodes, [value("x", HALF, (2, 64))], [value("y", HALF, (2, 64))], held))
    lost = of(result, "HW105")
    assert (lost.severity, lost.where.name, lost.numbers["nonfinite"]) == ("error", "w", 2)
    assert "stored as infinity" in lost.message
    limits = {each.where.name: each.numbers["largest"] for each in result.findings if each.rule == "HW108"}
    assert limits == {"w": 1, "k": 64}


def test_an_fp32_weight_of_65504_is_nobodys_clamp() -> None:
    held = [tensor("w", FLOAT, np.full((64, 64), 65504.0))]
    found = scan(model([node("MatMul", "x w", "y")], [value("x", shape=(2, 64))], [value("y", shape=(2, 64))], held))
    assert "HW108" not in rules(found)
