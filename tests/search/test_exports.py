"""What models cost as exporters write them: masks, caches, positions; one channel of the first MLP is at 1.5e5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.exported import sample
from halfwise.verbs.fix.fix import fix
from tests.support.grown import EXPORTS, grown
from tools.skeleton import main


@pytest.mark.parametrize(
    ("name", "nodes", "runs"), [("opt", 0, 24), ("llama", 0, 18), ("t5_decoder", 5, 31), ("deberta", 11, 18)]
)
def test_an_export_needs_no_more_nodes_and_runs_than_it_did(name: str, nodes: int, runs: float, tmp_path: Path) -> None:
    model = grown(EXPORTS / f"{name}.onnx.xz")
    onnx.save(model, tmp_path / "model.onnx")
    metric = "logits" if any(output.name == "logits" for output in model.graph.output) else None
    found = fix(tmp_path / "model.onnx", [sample(model, seed) for seed in range(6)], metric=metric)
    assert found.met
    assert len(found.fp32_nodes) <= nodes
    assert found.cost.model_runs <= runs


def test_a_grown_weight_is_spread_as_the_one_that_was_left_out(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).normal(0.0, 0.02, (64, 48)).astype(np.float32)
    wide[:, 7] *= 1000.0
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size]) for name, size in (("x", 64), ("y", 48))
    ]
    bias = np.arange(48, dtype=np.float32)
    held = [onnx.numpy_helper.from_array(array, name) for array, name in ((wide, "w"), (bias, "b"))]
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    onnx.save(helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], held)), tmp_path / "model.onnx")
    assert main([str(tmp_path / "model.onnx"), str(tmp_path / "model.onnx.xz")]) == 0
    assert (tmp_path / "model.onnx.xz").stat().st_size < wide.nbytes / 10
    made = grown(tmp_path / "model.onnx.xz")
    drawn, kept = map(onnx.numpy_helper.to_array, made.graph.initializer)
    assert made.graph.node == [node]
    np.testing.assert_array_equal(kept, bias)
    assert drawn.shape == wide.shape and not np.array_equal(drawn, wide)
    np.testing.assert_allclose(np.delete(drawn, 7, 1).std(), 0.02, rtol=0.1)
    np.testing.assert_allclose(drawn[:, 7].std(), 20.0, rtol=0.3)
