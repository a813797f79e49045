"""HW401 where a weight reads loud and quiet channels: small weights of loud ones are not lost beside the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.repair import scale_blocks
from halfwise.repair.rescale import RESCALE
from tests.models.build import model, node, value, weight
from tests.support.repairing import effect
from tests.support.rescaled import normal, rows

WIDTH = 16


def _in_other_units(seed: int, low: int, high: int, *, conv: bool = False, bias: bool = False) -> onnx.ModelProto:
    """Three layers; each hidden unit is in a unit of its own, which the next layer takes back."""
    units = np.random.default_rng(seed).integers(low, high + 1, (2, WIDTH))
    made, read = np.exp2(np.float32([*units, [0] * WIDTH])), np.exp2(-np.float32([[0] * WIDTH, *units]))
    nodes, weights, x = [], [], "x"
    for layer in range(3):
        last = layer == 2
        array = normal(seed + layer, WIDTH, WIDTH, scale=0.3) * made[layer][:, None] * read[layer]
        weights.append(weight(f"w{layer}", array[:, :, None] if conv else array))
        if bias:
            weights.append(weight(f"b{layer}", normal(seed + layer, WIDTH, scale=0.1) * made[layer]))
        given = f"{x} w{layer}" + (f" b{layer}" if bias else "")
        attributes: dict[str, Any] = {} if conv else {"transB": 1}
        nodes.append(node("Conv" if conv else "Gemm", given, "y" if last else f"a{layer}", **attributes))
        if not last:
            nodes.append(node("Relu", f"a{layer}", x := f"h{layer}"))
    shape = (8, WIDTH, 4) if conv else (8, WIDTH)
    return model(nodes, [value("x", shape=shape)], [value("y", shape=None)], weights)


@pytest.mark.parametrize("low, high", [(-28, 14), (-20, 10), (-26, 0)])
@pytest.mark.parametrize("large", [False, True], ids=["held", "read when asked"])
@pytest.mark.parametrize("conv, bias", [(False, False), (False, True), (True, True)])
def test_units_of_their_own_are_taken_back(
    low: int, high: int, conv: bool, bias: bool, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        for name in ("LARGE", "_MOST", "_FEW"):
            monkeypatch.setattr(scale_blocks, name, 0)
    feeds = rows(2, 8, WIDTH, *((4,) if conv else ()))
    for seed in range(3):
        found = effect(RESCALE, _in_other_units(seed, low, high, conv=conv, bias=bias), feeds)
        assert found.before > 1 and found.bit_identical
        assert found.after < 0.2


def test_a_row_whose_bias_says_it_all_asks_for_nothing() -> None:
    """Its products are far below FP16's resolution there, and so are their roundings."""
    nodes = [node("Gemm", "x w1 c", "a"), node("Clip", "a least most", "b"), node("Gemm", "b w2", "y")]
    first = normal(1, 8, 8, scale=1e-6) * np.float32([1e-2] + [1] * 7)[:, None]
    weights = [weight("w1", first), weight("c", normal(2, 8)), weight("w2", normal(3, 8, 8))]
    weights += [weight("least", np.float32(-3)), weight("most", np.float32(3))]
    proto = model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], weights)
    found = effect(RESCALE, proto, [{"x": each["x"] * np.float32([1e2] + [1] * 7)} for each in rows(3, 4, 8)])
    assert found.before < 0.1 and found.after < 0.1 and found.bit_identical


@pytest.mark.parametrize("op", ["LayerNormalization", "InstanceNormalization", "GroupNormalization", "SkipLayer"])
def test_channels_behind_a_norm_are_as_loud_as_their_scales(op: str) -> None:
    """The quiet ones have room, though one is loud."""
    units = np.exp2(np.float32([12] + [-20] * (WIDTH - 1)))
    gains, shifts, rest = normal(1, WIDTH) * units, normal(2, WIDTH) * units, normal(3, WIDTH, WIDTH) / units[:, None]
    weights = [weight("g", gains), weight("s", shifts), weight("w", rest if "Layer" in op else rest.T[:, :, None])]
    given: dict[str, Any] = {"num_groups": 4} if op == "GroupNormalization" else {}
    if op == "SkipLayer":
        first = node("SkipLayerNormalization", "x x g s", "n", epsilon=1e-5, domain="com.microsoft")
    else:
        first = node(op, "x g s", "n", **given)
    shape = (8, WIDTH) if "Layer" in op else (8, WIDTH, 6)
    last = node("MatMul" if "Layer" in op else "Conv", "n w", "y")
    if op == "SkipLayer":
        shape = (2, 4, WIDTH)
    io = [value("x", shape=shape)], [value("y", shape=None)]
    proto = model([first, last], *io, weights, opset=21, domains=("com.microsoft",))
    found = effect(RESCALE, proto, rows(2, *shape))
    assert found.before > 1 and found.bit_identical
    assert found.after < 0.2


@pytest.mark.parametrize("mixes", ["input", "constant", "softmax"])
@pytest.mark.parametrize("reduces", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"])
def test_channels_stay_apart_where_rows_are_mixed_and_reduced(mixes: str, reduces: str) -> None:
    """Message passing: what a matrix mixes are nodes of a graph, and no channels."""
    nodes_of_graph = 6
    units = np.exp2(np.random.default_rng(1).integers(-24, 9, WIDTH).astype(np.float32))
    mixed = np.abs(normal(5, nodes_of_graph, nodes_of_graph))
    weights = [weight("w1", normal(1, WIDTH, WIDTH) * units), weight("w2", normal(2, WIDTH, WIDTH) / units[:, None])]
    weights += [weight("axes", np.array([1], np.int64))] + ([weight("m", mixed)] if mixes == "constant" else [])
    graph = [node("MatMul", "x w1", "h")]
    graph += [node("Softmax", "s", "m")] if mixes == "softmax" else []
    graph += [node("MatMul", "m h", "a"), node("Relu", "a", "b"), node(reduces, "b axes", "c", keepdims=0)]
    graph += [node("MatMul", "c w2", "y")]
    inputs = [value("x", shape=(4, nodes_of_graph, WIDTH))]
    feeds = rows(2, 4, nodes_of_graph, WIDTH)
    if mixes != "constant":
        name, shape = "s" if mixes == "softmax" else "m", (4, nodes_of_graph, nodes_of_graph)
        inputs.append(value(name, shape=shape))
        feeds = [each | {name: np.broadcast_to(mixed, shape).copy()} for each in feeds]
    found = effect(RESCALE, model(graph, inputs, [value("y", shape=None)], weights, opset=18), feeds)
    assert found.before > 1 and found.bit_identical
    assert found.after < 0.3
