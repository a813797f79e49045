"""HW401 through ONNX Runtime's own operators: a residual stream beyond FP16 becomes small, and FP32 keeps its bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import fix
from halfwise.repair.rescale import RESCALE
from tests.models.build import model, node, value, weight
from tests.models.contrib_cases import DOMAIN
from tests.support.repairing import effect

Array = NDArray[np.float32]
SIZE = 32


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def feeds() -> list[dict[str, Array]]:
    return [{"x": normal(seed, 2, 4, SIZE)} for seed in range(3)]


def stream(kind: str, product: str) -> onnx.ModelProto:
    """Two layers that add to a residual stream of about 1e6, each behind a norm that is fused to the sum."""
    own: dict[str, Any] = {"domain": DOMAIN}
    centred = kind == "SkipLayerNormalization"
    norm = "g b" if centred else "g"
    weights = [
        weight("w0", normal(1, SIZE, SIZE, scale=2e5)),
        weight("g", normal(2, SIZE)),
        weight("b", normal(3, SIZE)),
    ]
    first = node("LayerNormalization", "h0 g b", "n1", epsilon=1e-5)
    if not centred:
        first = node("SimplifiedLayerNormalization", "h0 g", "n1", axis=-1, epsilon=1e-6)
    nodes = [node("MatMul", "x w0", "h0"), first, *linear(product, "n1", "d1", 1, weights)]
    nodes.append(node(kind, f"d1 h0 {norm}", "n2 - - s", epsilon=1e-5, **own))
    nodes += linear(product, "n2", "d2", 2, weights)
    last = "s d2 g b w9" if centred else "s d2 g w9"
    weights.append(weight("w9", normal(9, SIZE, scale=1e5)))
    nodes.append(node(kind, last, "y", epsilon=1e-5, **own))
    return model(nodes, [value("x", shape=(2, 4, SIZE))], [value("y", shape=(2, 4, SIZE))], weights, domains=[DOMAIN])


def linear(product: str, before: str, after: str, layer: int, weights: list[onnx.TensorProto]) -> list[onnx.NodeProto]:
    name = f"w{layer}"
    if product == "MatMulNBits":
        packed = np.random.default_rng(layer).integers(0, 256, (SIZE, 2, 8)).astype(np.uint8)
        weights += [weight(name, packed), weight(f"{name}s", np.abs(normal(layer, SIZE, 2, scale=1e4)))]
        sizes = {"K": SIZE, "N": SIZE, "bits": 4, "block_size": 16}
        return [node(product, f"{before} {name} {name}s", after, domain=DOMAIN, **sizes)]
    weights.append(weight(name, normal(layer, SIZE, SIZE, scale=1e5)))
    more = {} if product == "MatMul" else {"domain": DOMAIN, "alpha": 0.5, "transB": layer % 2}
    return [node(product, f"{before} {name}", after, **more)]


@pytest.mark.parametrize("product", ["MatMul", "FusedMatMul", "MatMulNBits"])
@pytest.mark.parametrize("kind", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_a_loud_residual_stream_is_scaled_through_fused_norms(kind: str, product: str) -> None:
    found = effect(RESCALE, stream(kind, product), feeds())
    assert found.before > 1 and found.after < 0.5
    assert found.bit_identical
    assert found.ops() == [each.op_type for each in found.model.nodes]


def test_with_the_repair_no_node_stays_in_fp32_and_without_it_some_do() -> None:
    proto = stream("SkipSimplifiedLayerNormalization", "MatMul")
    assert fix(proto, feeds(), repairs="none").fp32_nodes
    result = fix(proto, feeds())
    assert result.met and not result.fp32_nodes


def test_an_epsilon_that_is_left_to_its_default_is_left_alone() -> None:
    proto = stream("SkipSimplifiedLayerNormalization", "MatMul")
    for each in proto.graph.node:
        del each.attribute[:]
    found = effect(RESCALE, proto, feeds())
    assert not any(repair.parameters["epsilons"] for repair in found.repairs)
    assert found.bit_identical
