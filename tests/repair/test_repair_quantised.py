"""HW401 past quantisers: a scale takes what its tensor carries, the integers stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.model.contrib.schemas import DOMAIN
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


BLOCK, LOUDER = 16, 3e9


def loud_and_quiet(how: str) -> onnx.ModelProto:
    """x -> MatMul -> Relu -> product by a weight with a scale for each block of inputs -> y. The first block reads up
    to 3e9 and the second up to 3e-3, with scales that bring both to one size: no one power of two fits both."""
    outputs = 8
    first = np.random.default_rng(1).standard_normal((WIDTH, 2 * BLOCK)).astype(np.float32)
    first *= np.repeat(np.float32([LOUDER / 10, 1e-3]), BLOCK)
    words = np.random.default_rng(2).integers(-7, 8, (2 * BLOCK, outputs)).astype(np.float32)
    scale = np.outer(np.float32([1 / LOUDER, 1e3]), np.geomspace(0.5, 2.0, outputs)).astype(np.float32)
    small, nodes = TensorProto.INT4, [node("MatMul", "x w", "h"), node("Relu", "h", "r")]
    weights = [weight("w", first)]
    if how == "packed":
        pairs = (words.T + 8).astype(np.uint8).reshape(outputs, 2, -1, 2)
        weights += [weight("w4", pairs[..., 0] | pairs[..., 1] << 4), weight("s", np.ascontiguousarray(scale.T))]
        sizes = {"K": 2 * BLOCK, "N": outputs, "bits": 4, "block_size": BLOCK}
        nodes.append(node("MatMulNBits", "r w4 s", "y", domain=DOMAIN, **sizes))
    elif how == "turned":
        weights += [whole("w4", words.T, small), weight("s", np.ascontiguousarray(scale.T))]
        nodes += [node("DequantizeLinear", "w4 s", "d", axis=1, block_size=BLOCK)]
        nodes += [node("Transpose", "d", "t", perm=[1, 0]), node("MatMul", "r t", "y")]
    else:
        weights += [whole("w4", words, small), weight("s", scale)]
        nodes += [node("DequantizeLinear", "w4 s", "d", axis=0, block_size=BLOCK), node("MatMul", "r d", "y")]
    given, made = value("x", shape=(4, WIDTH)), value("y", shape=(4, outputs))
    return model(nodes, [given], [made], weights, opset=21, ir_version=10, domains=[DOMAIN])


@pytest.mark.parametrize("how", ["straight", "turned", "packed"])
def test_each_block_of_inputs_takes_a_power_of_its_own(how: str) -> None:
    found = effect(RESCALE, loud_and_quiet(how), inputs(), tolerance=0.02)
    assert found.before > 1.0 > found.after
    assert found.bit_identical


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
