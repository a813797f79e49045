"""The trace against a naive count over everything that ONNX Runtime computes, and its bounded memory."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.verbs.trace import Trace, trace
from tests.models.zoo import SHAPES, ZooModel, encoder
from tests.support.messages import kinds


def everything(zoo: ZooModel) -> dict[str, np.ndarray]:
    """All values of every float tensor over all inputs, from a run that keeps everything."""
    model = onnx.shape_inference.infer_shapes(copy.deepcopy(zoo.model))
    known = {value.name for value in model.graph.output}
    for value in model.graph.value_info:
        if value.name not in known and value.type.tensor_type.elem_type == TensorProto.FLOAT:
            model.graph.output.append(value)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    seen: dict[str, list[np.ndarray]] = {}
    for feed in zoo.inputs:
        outputs = dict(zip(names, session.run(names, feed), strict=True)) | feed
        for name, array in outputs.items():
            if array.dtype == np.float32:
                seen.setdefault(name, []).append(array.reshape(-1))
    return {name: np.concatenate(arrays) for name, arrays in seen.items()}


@pytest.mark.parametrize(
    "shape", ["layer_norm_overflow", "l2_norm_of_small_vectors", "mask_float_min", "log_of_energy"]
)
def test_counts_are_those_of_a_naive_count(shape: str) -> None:
    zoo = SHAPES[shape]()
    result = trace(zoo.model, zoo.inputs)
    expected = everything(zoo)
    assert {tensor.name for tensor in result.tensors} == set(expected)
    assert result.samples == len(zoo.inputs) and result.inputs == "given" and result.notes == ()
    for tensor in result.tensors:
        values = expected[tensor.name]
        magnitude = np.abs(values[np.isfinite(values)].astype(np.float64))
        assert tensor.nonfinite == pytest.approx(np.mean(~np.isfinite(values)))
        assert tensor.over == pytest.approx(np.sum(magnitude > 65504) / values.size)
        assert tensor.below_normal == pytest.approx(np.sum((magnitude > 0) & (magnitude < 2.0**-14)) / values.size)
        assert tensor.below_subnormal == pytest.approx(np.sum((magnitude > 0) & (magnitude < 2.0**-24)) / values.size)
        assert tensor.max == pytest.approx(values[np.isfinite(values)].max(), rel=1e-6)
        assert tensor.min == pytest.approx(values[np.isfinite(values)].min(), rel=1e-6)


def one_node(op: str, **attributes: object) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], name="only", **attributes)],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_local_error_is_the_error_of_that_node_alone() -> None:
    x = np.random.default_rng(5).uniform(1, 2, 500).astype(np.float32)
    half = x.astype(np.float16).astype(np.float32)
    wanted = np.sqrt(x.astype(np.float64))
    got = np.sqrt(half).astype(np.float16).astype(np.float64)
    expected = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
    (node,) = trace(one_node("Sqrt"), [{"x": x}]).nodes
    assert (node.name, node.op) == ("only", "Sqrt")
    assert node.local_error == pytest.approx(expected, rel=1e-3)


def test_overflow_is_an_infinite_error_and_valid_json() -> None:
    result = trace(one_node("Exp"), [{"x": np.array([1.0, 20.0], np.float32)}])
    assert result.nodes[0].local_error == np.inf
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["nodes"] == [{"name": "only", "op": "Exp", "local_error": "inf"}]
    assert document["tensors"][1]["over"] == 0.5


def test_bf16_has_the_range_and_less_precision() -> None:
    feed = {"x": np.array([1.0, 20.0], np.float32)}
    error = {fmt: trace(one_node("Exp"), [feed], fmt=fmt).nodes[0].local_error for fmt in (Format.FP16, Format.BF16)}
    assert error[Format.FP16] == np.inf
    assert 1e-4 < error[Format.BF16] < 0.1


def test_what_fp32_itself_lacks_is_no_error_of_fp16() -> None:
    result = trace(one_node("Log"), [{"x": np.array([-1.0, 0.0, 1.0, 2.0], np.float32)}])
    y = next(tensor for tensor in result.tensors if tensor.name == "y")
    assert y.nonfinite == 0.5 and (y.min, y.max) == (0.0, pytest.approx(np.log(2.0)))
    assert 0 < result.nodes[0].local_error < 1e-3


def test_control_flow_is_seen_through_the_node_that_holds_it() -> None:
    zoo = SHAPES["if_with_norms"]()
    result = trace(zoo.model, zoo.inputs[:2])
    assert next(node.local_error for node in result.nodes if node.op == "If") > 0.1


def test_every_way_to_name_a_model_and_its_inputs(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    path, inputs = tmp_path / "m.onnx", tmp_path / "in"
    onnx.save(zoo.model, path)
    inputs.mkdir()
    for index, feed in enumerate(zoo.inputs):
        np.savez(inputs / f"{index}.npz", **feed)
    results: list[Trace] = [
        trace(path, inputs),
        trace(str(path), [str(inputs)]),
        trace(zoo.model, iter(zoo.inputs)),
        trace(load(path), zoo.inputs),
    ]
    assert all(result == results[0] for result in results)
    assert trace(path, zoo.inputs[0]).samples == 1  # one sample is not varied: nothing is held out here
    assert trace(path, zoo.inputs[0]).notes == ()
    assert trace(path).inputs == "synthetic" and kinds(trace(path).notes) == [NoteKind.SYNTHETIC]
    assert trace(path, []).inputs == "synthetic"


def test_only_live_tensors_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = encoder(2, seq=16)
    held: list[int] = []
    put = Store.put

    def counted(self: Store, value: object, array: np.ndarray) -> None:
        put(self, value, array)
        held.append(len(self._values))

    monkeypatch.setattr(Store, "put", counted)
    progress: list[tuple[int, int]] = []
    trace(zoo.model, zoo.inputs[:2], notify=lambda done, total: progress.append((done, total)))
    nodes = len(load(zoo.model).graph)
    assert len(held) == 2 * nodes and max(held) <= 8  # of more than 90 tensors
    assert progress == [(done, 2 * nodes) for done in range(1, 2 * nodes + 1)]
