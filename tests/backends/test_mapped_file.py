"""A written model whose weights the runtime maps: the same bytes, the same answers, and not held twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from halfwise.backends import mapped_file
from halfwise.backends.as_written import run_as_written
from halfwise.backends.mapped_file import mapped
from halfwise.model import weights_in_place
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from tests.models.zoo import encoder


@pytest.fixture(autouse=True)
def every_file_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "LEAST", 0)
    monkeypatch.setattr(weights_in_place, "_LEAST", 1)


def _written(folder: Path) -> Path:
    return write_typed(Assignment.all_narrow(Sites(load(encoder().model))), folder / "typed.onnx").path


def _answers(content: str | bytes, options: ort.SessionOptions) -> list[NDArray[np.float32]]:
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(encoder().inputs[0])))


def test_it_is_the_same_model_and_answers_the_same(tmp_path: Path) -> None:
    path, options = _written(tmp_path), ort.SessionOptions()
    content = mapped(path, options)
    assert content is not None and len(content) < path.stat().st_size / 2
    for one, other in zip(_answers(content, options), _answers(str(path), ort.SessionOptions()), strict=True):
        assert np.array_equal(one, other)
    outside = onnx.load_from_string(content)
    assert any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in outside.graph.initializer)
    onnx.external_data_helper.load_external_data_for_model(outside, str(tmp_path))
    for tensor in outside.graph.initializer:
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    assert outside == onnx.load(path)


def test_what_is_written_lies_as_the_runtime_wants_it(tmp_path: Path) -> None:
    path = _written(tmp_path)
    content = path.read_bytes()
    large = [tensor.raw_data for tensor in onnx.load(path).graph.initializer if len(tensor.raw_data) > 1024]
    assert large and all(content.index(each) % 64 == 0 for each in large)


@pytest.mark.parametrize("length", [0, 1, 100, 5000])
def test_a_file_that_is_cut_off_is_left_to_the_runtime(tmp_path: Path, length: int) -> None:
    path = _written(tmp_path)
    path.write_bytes(path.read_bytes()[:-length] if length else b"\xff" * 5000)
    assert mapped(path, ort.SessionOptions()) is None


def test_a_weight_that_lies_otherwise_is_parsed(tmp_path: Path) -> None:
    path, options = tmp_path / "plain.onnx", ort.SessionOptions()
    onnx.save(encoder().model, path)
    content = mapped(path, options) or str(path)
    for one, other in zip(_answers(content, options), _answers(str(path), ort.SessionOptions()), strict=True):
        assert np.array_equal(one, other)


def test_a_large_file_runs_as_written(tmp_path: Path) -> None:
    """In the child, where nothing is patched."""
    path = tmp_path / "large.onnx"
    weight = np.random.default_rng(0).standard_normal((2048, 2048)).astype(np.float32)
    x = onnx.helper.make_tensor_value_info("x", 1, [1, 2048])
    y = onnx.helper.make_tensor_value_info("y", 1, [1, 2048])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [x],
        [y],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    typed = write_typed(Assignment(Sites(load(proto)), {}), path).path
    feed = {"x": np.ones((1, 2048), np.float32)}
    (found,) = run_as_written(typed, [feed], 60.0)
    exact = weight.astype(np.float64).sum(axis=0)
    assert np.allclose(found["y"][0], exact, rtol=0, atol=2.0**-20 * float(np.abs(weight).sum(axis=0).max()))
