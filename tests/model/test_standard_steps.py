"""ONNX's Attention in steps gives what ONNX Runtime's kernel gives; in FP16 its scores are stored."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.ort import Session
from halfwise.emulation.profiles import STRICT, WIDE
from halfwise.model.contrib.decompose import decompose, runs_on_cpu
from halfwise.model.contrib.writer import PlainSteps
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

Array = np.ndarray[Any, Any]
KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(bool): TensorProto.BOOL}
RNG = np.random.default_rng(5)


def tensor(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


Q, K, V = tensor(2, 4, 3, 8), tensor(2, 4, 6, 8), tensor(2, 4, 6, 5)
K2, V2 = K[:, :2], V[:, :2]
PAST = [tensor(2, 4, 7, 8), tensor(2, 4, 7, 5)]
MASK = tensor(3, 6)
SEEN = MASK > -0.5
SEEN[:, 0] = True
NEVER = np.where(SEEN, 0, -np.inf).astype(np.float32)
FLAT = [tensor(2, 3, 32), tensor(2, 3, 16), tensor(2, 3, 16)]
CASES: dict[str, tuple[list[Array | None], int, dict[str, Any]]] = {
    "plain": ([Q, K, V], 1, {}),
    "scale": ([Q, K, V], 1, {"scale": 0.05}),
    "causal": ([Q, K, V], 1, {"is_causal": 1}),
    "mask": ([Q, K, V, MASK], 1, {}),
    "bool mask": ([Q, K, V, SEEN], 1, {}),
    "infinite mask": ([Q, K, V, NEVER], 1, {}),
    "mask and causal": ([Q, K, V, MASK], 1, {"is_causal": 1}),
    "softcap": ([Q, K, V, MASK], 1, {"softcap": 1.5}),
    "groups": ([Q, K2, V2], 1, {}),
    "three dimensions": (FLAT, 1, {"q_num_heads": 4, "kv_num_heads": 2}),
    "past": ([Q, K, V, None, *PAST], 3, {}),
    "past, causal": ([Q, K, V, None, *PAST], 3, {"is_causal": 1}),
    **{
        f"scores {mode}": ([Q, K, V, MASK], 4, {"qk_matmul_output_mode": mode, "softcap": 2.0}) for mode in range(4)
    },
}  # fmt: skip


def attention(name: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    arrays, outputs, attributes = CASES[name]
    feeds = {f"i{slot}": array for slot, array in enumerate(arrays) if array is not None}
    read = [f"i{slot}" if array is not None else "" for slot, array in enumerate(arrays)]
    made = ["y", "pk", "pv", "qk"][:outputs]
    if outputs == 4:
        made[1:3] = "", ""
    node = helper.make_node("Attention", read, made, name="n", **attributes)
    given = [helper.make_tensor_value_info(key, KINDS[array.dtype], array.shape) for key, array in feeds.items()]
    found = [helper.make_tensor_value_info(key, TensorProto.FLOAT, None) for key in made if key]
    graph = helper.make_graph([node], "g", given, found)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), feeds


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("name", CASES)
def test_the_steps_are_what_the_kernel_computes(name: str, opset: int) -> None:
    proto, feeds = attention(name)
    (node,) = load(proto).graph
    fresh = count()
    steps = PlainSteps(node, opset, lambda word: f"{word}{next(fresh)}")
    results = decompose(steps, [value.name or "" if value is not None else "" for value in node.inputs])
    assert results is not None
    expected = Session(proto).run(feeds)
    ends = [
        helper.make_node("Identity", [results[slot]], [value.name])
        for slot, value in enumerate(node.outputs)
        if value.name
    ]
    made = [onnx.ValueInfoProto(name=key) for key in expected]
    graph = helper.make_graph([*steps.nodes, *ends], "g", proto.graph.input, made)
    apart = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    for key, array in Session(apart).run(feeds).items():
        np.testing.assert_allclose(array, expected[key], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(3, 6), (1, 6), (6,), (2, 1, 1, 6), (4, 3, 6), (1, 4, 1, 6), (2, 4, 3, 6)], ids=str)
@pytest.mark.parametrize("queries", [1, 3])
def test_a_mask_that_the_kernel_does_not_spread_is_spread(
    shape: tuple[int, ...], queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel itself tells whether it takes it, and what it gives for the same mask in full."""
    shape = tuple(min(size, queries) if size == 3 else size for size in shape)
    mask = tensor(*shape)
    monkeypatch.setitem(CASES, "given", ([Q[:, :, :queries], K, V, mask], 1, {}))
    monkeypatch.setitem(CASES, "full", ([Q[:, :, :queries], K, V, mask + np.zeros((2, 4, queries, 6), "f4")], 1, {}))
    proto, feeds = attention("given")
    model = load(proto)
    try:
        Session(proto).run(feeds)
        taken = True
    except InputError:
        taken = False
    assert runs_on_cpu(model.nodes[0]) is taken
    whole, given = attention("full")
    expected = Session(whole).run(given)
    found = Emulator(STRICT).session(Assignment(Sites(model), {})).run(feeds)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=2e-5, atol=2e-6)


def test_what_is_not_known_has_no_steps() -> None:
    proto, _ = attention("plain")
    (node,) = load(proto).graph
    node.attributes.add(ir.AttrInt64("window", 3))
    assert decompose(PlainSteps(node, 23, str), ["i0", "i1", "i2"]) is None


def half(array: Array) -> Array:
    return array.astype(np.float16).astype(np.float32)


def test_strict_stores_the_scores_and_wide_does_not() -> None:
    """By hand, in FP16 where a step is stored: scores near 1000 are off by up to a half."""
    proto, feeds = attention("scale")
    feeds = {"i0": half(50 + feeds["i0"]), "i1": half(50 + 0.05 * feeds["i1"]), "i2": half(feeds["i2"])}
    root = np.float32(np.sqrt(np.float32(0.05)))
    q, k, v = feeds["i0"], feeds["i1"].transpose(0, 1, 3, 2), feeds["i2"]

    def softmax(x: Array) -> Array:
        powers = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))

    stored = half(half(softmax(half(half(q * root) @ half(k * root)))) @ v)
    exact = softmax((q * root) @ (k * root)) @ v
    narrow = Assignment.all_narrow(Sites(load(proto), Format.FP16))
    strict, wide = (Emulator(profile).session(narrow).run(feeds)["y"] for profile in (STRICT, WIDE))
    np.testing.assert_allclose(strict, stored, atol=2e-3)
    np.testing.assert_allclose(wide, exact, atol=2e-3)
    assert np.abs(stored - exact).max() > 0.02
