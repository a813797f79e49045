"""A decoder as ONNX Runtime's tools write it: grouped queries with rotation and a cache, prompts and single steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise import fix
from halfwise.core.notes import NoteKind
from tests.model.test_contrib import session
from tests.models.build import model, node, value, weight
from tests.models.contrib_cases import DOMAIN
from tests.support.messages import kinds, only

Array = NDArray[Any]
SIZE, HEADS, KEPT, HEAD, WORDS = 32, 2, 1, 16, 50


def decoder(head: int | str = HEAD) -> onnx.ModelProto:
    """`head`: the size of one, as the caches declare it."""
    rng = np.random.default_rng(0)
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *shape: int, scale: float = 0.2) -> str:
        weights.append(numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name))
        return name

    angles = np.arange(32)[:, None] / 100.0 ** (np.arange(HEAD // 2) / (HEAD // 2))
    for name, array in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
        weights.append(numpy_helper.from_array(array.astype(np.float32), name))
    for name, number in (("axis", np.array([1])), ("place", np.array(1))):
        weights.append(numpy_helper.from_array(number.astype(np.int64), name))
    weights.append(numpy_helper.from_array(np.array(1, np.int32), "one"))
    own: dict[str, Any] = {"domain": DOMAIN}
    grouped = {"num_heads": HEADS, "kv_num_heads": KEPT, "do_rotary": 1, **own}
    table = [
        ("Gather", [weight("words", WORDS, SIZE, scale=1.0), "ids"], ["x"], {}),
        ("Cast", ["mask"], ["mask32"], {"to": TensorProto.INT32}),
        ("ReduceSum", ["mask32", "axis"], ["lengths"], {"keepdims": 0}),
        ("Sub", ["lengths", "one"], ["last"], {}),
        ("Shape", ["mask"], ["shape"], {}),
        ("Gather", ["shape", "place"], ["total64"], {}),
        ("Cast", ["total64"], ["total"], {"to": TensorProto.INT32}),
        ("SimplifiedLayerNormalization", ["x", weight("g1", SIZE, scale=1.0)], ["n1"], {"axis": -1, "epsilon": 1e-5}),
        ("MatMul", ["n1", weight("qkv", SIZE, (HEADS + 2 * KEPT) * HEAD)], ["packed"], {}),
        (
            "GroupQueryAttention",
            ["packed", "", "", "past_k", "past_v", "last", "total", "cos", "sin"],
            ["a", "present_k", "present_v"],
            grouped,
        ),
        ("MatMul", ["a", weight("out", SIZE, SIZE)], ["o"], {}),
        (
            "SkipSimplifiedLayerNormalization",
            ["x", "o", weight("g2", SIZE, scale=1.0)],
            ["n2", "", "", "s"],
            {"epsilon": 1e-5, **own},
        ),
        ("MatMul", ["n2", weight("up", SIZE, 2 * SIZE)], ["u"], {}),
        ("QuickGelu", ["u"], ["v"], {"alpha": 1.0, **own}),
        ("MatMul", ["v", weight("down", 2 * SIZE, SIZE)], ["d"], {}),
        ("SkipSimplifiedLayerNormalization", ["s", "d", "g1"], ["n3"], {"epsilon": 1e-5, **own}),
        ("MatMul", ["n3", weight("head", SIZE, WORDS)], ["logits"], {}),
    ]
    nodes = [
        helper.make_node(op, read, made, name=f"n{index}", **attributes)
        for index, (op, read, made, attributes) in enumerate(table)
    ]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", length])
        for n, length in (("ids", "rows"), ("mask", "all"))
    ]
    inputs += [
        helper.make_tensor_value_info(f"past_{n}", TensorProto.FLOAT, ["batch", KEPT, "past", head]) for n in "kv"
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "rows", WORDS])]
    outputs += [
        helper.make_tensor_value_info(f"present_{n}", TensorProto.FLOAT, ["batch", KEPT, "all", head]) for n in "kv"
    ]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def feeds() -> list[dict[str, Array]]:
    rng = np.random.default_rng(1)
    found = []
    for batch, rows, past in ((1, 1, 5), (2, 1, 3), (1, 4, 0), (1, 1, 8)):
        feed: dict[str, Array] = {"ids": rng.integers(0, WORDS, (batch, rows))}
        feed["mask"] = np.ones((batch, rows + past), np.int64)
        for name in ("past_k", "past_v"):
            feed[name] = rng.standard_normal((batch, KEPT, past, HEAD)).astype(np.float32)
        found.append(feed)
    return found


@pytest.mark.parametrize("target", ["ort-cuda", "trt-10.9"])
def test_prompts_and_steps_of_a_decoder_are_right_in_fp16(tmp_path: Path, target: str) -> None:
    result = fix(decoder(), feeds(), target=target, out=tmp_path)
    assert result.met and not result.fp32_nodes and result.typed is not None
    assert NoteKind.CLAMPED_WEIGHTS not in kinds(result.notes)  # the mask in the steps is no weight of the file
    typed = onnx.load(result.typed.path)
    fused = [node.op_type for node in typed.graph.node if node.domain]
    assert ("GroupQueryAttention" in fused) is (target == "ort-cuda")
    for feed in feeds():
        for found, exact in zip(session(typed).run(None, feed), session(decoder()).run(None, feed), strict=True):
            assert found.shape == exact.shape
            assert np.linalg.norm(found - exact) <= 5e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("target", ["onnx", "trt-10.9"])  # the second writes the operator out
def test_a_rollout_starts_from_caches_whose_heads_are_left_open_in_the_file(target: str) -> None:
    """As onnxruntime-genai writes it: past (batch_size, 1, past_sequence_length, kv_cache_dim)."""
    ids = np.random.default_rng(2).integers(0, WORDS, (16, 1, 1))
    stream = [{"ids": each, "mask": np.ones((1, index % 8 + 1), np.int64)} for index, each in enumerate(ids)]
    result = fix(decoder("head"), stream, rollout=8, feedback="present_*=past_*", metric="logits", target=target)
    assert result.met


def test_a_mask_of_the_files_own_is_told_as_clamped(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gelu", ["x"], ["g"], "bend", domain=DOMAIN),
        node("Greater", "x least", "seen"),
        node("Where", "seen g lowest", "scores"),
        node("Softmax", "scores", "y"),
    ]
    held = [weight("least", np.float32(-1)), weight("lowest", np.float32(-1e30))]
    proto = model(nodes, [value("x", shape=(4, 16))], [value("y", shape=(4, 16))], held)
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    samples = [{"x": np.random.default_rng(index).standard_normal((4, 16)).astype(np.float32)} for index in range(3)]
    result = fix(proto, samples, target="trt-10.9", out=tmp_path)
    assert only(result.notes, NoteKind.CLAMPED_WEIGHTS).values["names"] == ("lowest",)
