"""Words of 4 bits that are the weights of the last product, too, as onnxruntime-genai stores tied embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise import fix
from halfwise.model.model import load
from tests.model.test_contrib import session
from tests.models.contrib_cases import DOMAIN

WORDS, SIZE, BLOCK = 40, 32, 16


def tied() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    kept = {
        "table": rng.integers(0, 256, (WORDS, SIZE // BLOCK, BLOCK // 2)).astype(np.uint8),
        "scales": rng.uniform(0.02, 0.2, (WORDS, SIZE // BLOCK)).astype(np.float32),
        "flat": np.array([WORDS, SIZE // 2]),
    }
    block = {"domain": DOMAIN, "bits": 4, "block_size": BLOCK}
    nodes = [
        helper.make_node("Reshape", ["table", "flat"], ["packed"], "turn"),
        helper.make_node(
            "GatherBlockQuantized", ["packed", "ids", "scales"], ["x"], "words", gather_axis=0, quantize_axis=1, **block
        ),
        helper.make_node("Tanh", ["x"], ["h"], "bend"),
        helper.make_node("MatMulNBits", ["h", "table", "scales"], ["logits"], "head", K=SIZE, N=WORDS, **block),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "rows"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "rows", WORDS])
    weights = [numpy_helper.from_array(array, name) for name, array in kept.items()]
    graph = helper.make_graph(nodes, "tied", [ids], [logits], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("target", ["ort-cuda", "trt-10.9"])
def test_packed_words_are_right_in_fp16_whether_or_not_the_target_reads_them(tmp_path: Path, target: str) -> None:
    feeds = [{"ids": np.random.default_rng(index).integers(0, WORDS, (1, 5))} for index in range(4)]
    result = fix(tied(), feeds, target=target, out=tmp_path)
    assert result.met and not result.fp32_nodes and result.typed is not None
    typed = onnx.load(result.typed.path)
    assert any(node.op_type == "GatherBlockQuantized" for node in typed.graph.node) is (target == "ort-cuda")
    for feed in feeds:
        found, exact = (session(each).run(None, feed)[0] for each in (typed, tied()))
        assert np.linalg.norm(found - exact) <= 5e-3 * np.linalg.norm(exact)


def test_made_up_words_reach_the_last_of_them() -> None:
    (ids,) = load(tied()).inputs
    assert ids.most == WORDS - 1
