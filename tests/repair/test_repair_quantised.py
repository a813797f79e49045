"""HW401 past quantisers: a scale takes what its tensor carries, the integers stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.repair.rescale import RESCALE
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight
from tests.models.quantised import whole
from tests.support.repairing import effect

Array = NDArray[np.float32]
WIDTH, LOUD = 16, 3e5


def inputs(*shape: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.standard_normal(shape or (4, WIDTH)).astype(np.float32)} for _ in range(4)]


def integers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.float32)


def quantised_chain(product: str, axis: int | None = None, dynamic: bool = False) -> onnx.ModelProto:
    """Q -> DQ -> product by quantised weights up to 3e5 -> Relu -> Q -> DQ -> product -> y, all but y beyond FP16."""
    convolves, scalar = product == "Conv", axis is None
    shape = (WIDTH, WIDTH, 1, 1) if convolves else (WIDTH, WIDTH)
    spread = np.geomspace(0.5, 2.0, WIDTH).astype(np.float32)
    steps = LOUD / 1600.0 * (np.float32(1) if scalar else spread)
    along: dict[str, Any] = {} if scalar else {"axis": axis}
    weights = [
        weight("small", np.float32(0.03)), weight("large", np.float32(LOUD / 127)),
        whole("zero", np.zeros(()), TensorProto.INT8),
        whole("w0", integers(1, *shape), TensorProto.INT8), weight("s0", np.asarray(steps, np.float32)),
        whole("w1", integers(2, *shape), TensorProto.INT8), weight("s1", np.float32(1e-9)),
    ]  # fmt: skip
    again = [node("QuantizeLinear", "r large zero", "q1"), node("DequantizeLinear", "q1 large zero", "d1")]
    if dynamic:
        again = [node("DynamicQuantizeLinear", "r", "q1 ds dz"), node("DequantizeLinear", "q1 ds dz", "d1")]
    bias = " b" if product in ("Conv", "Gemm") else ""
    nodes = [
        node("QuantizeLinear", "x small zero", "q0"),
        node("DequantizeLinear", "q0 small zero", "d0"),
        node("DequantizeLinear", "w0 s0", "v0", **along),
        node(product, f"d0 v0{bias}", "m0"),
        node("Relu", "m0", "r"),
        *again,
        node("DequantizeLinear", "w1 s1", "v1"),
        node(product, "d1 v1", "y"),
    ]
    if bias:
        by_row = () if scalar else (WIDTH,)
        weights += [
            whole("b0", integers(3, WIDTH) * 100, TensorProto.INT32),
            weight("bs", np.broadcast_to(np.float32(0.5), by_row).copy()),
        ]
        nodes.insert(3, node("DequantizeLinear", "b0 bs", "b", axis=0))
    size = (4, WIDTH, 3, 3) if convolves else (4, WIDTH)
    return model(nodes, [value("x", shape=size)], [value("y", shape=size)], weights, opset=21, ir_version=10)


def feeds_of(product: str) -> list[dict[str, Array]]:
    return inputs(4, WIDTH, 3, 3) if product == "Conv" else inputs()


@pytest.mark.parametrize(("product", "axis"), [("MatMul", 1), ("Conv", 0), ("Gemm", None)])
def test_a_scale_takes_what_overflows_before_it(product: str, axis: int | None) -> None:
    found = effect(RESCALE, quantised_chain(product, axis), feeds_of(product), tolerance=0.02)
    assert found.before > 1.0 > found.after
    assert found.bit_identical


def test_a_quantised_model_whose_values_overflow_needs_no_fp32_node() -> None:
    found = fix(quantised_chain("MatMul", 1), inputs())
    assert found.met and not found.fp32_nodes
    assert {repair.rule for repair in found.plan.repairs} == {"HW401"}


def test_a_scale_made_of_the_range_carries_its_power_of_two() -> None:
    found = effect(RESCALE, quantised_chain("MatMul", dynamic=True), inputs())
    assert found.bit_identical
    assert "n_m0" in {name for repair in found.repairs for name in repair.nodes} and found.after < found.before


def test_integers_stay_as_they_are() -> None:
    repaired = effect(RESCALE, quantised_chain("MatMul"), inputs()).repaired.graph
    for name, seed in (("w0", 1), ("w1", 2)):
        held = repaired.initializers[name].const_value
        assert held is not None
        np.testing.assert_array_equal(held.numpy(), integers(seed, WIDTH, WIDTH))


def test_a_quantised_weight_that_two_nodes_read_stays() -> None:
    given = quantised_chain("MatMul")
    given.graph.node.extend([node("MatMul", "x v0", "product"), node("Tanh", "product", "z")])
    given.graph.output.append(value("z", shape=(4, WIDTH)))
    found = effect(RESCALE, given, inputs())
    assert found.bit_identical
    assert not any("n_v0" in repair.nodes for repair in found.repairs)
