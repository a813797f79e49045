"""A typed model widened to FP32: the numbers that the file stores, no casts between floats, the same interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from onnx import TensorProto, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, emulate
from halfwise.emulation.ort import Session
from halfwise.model.elements import Elements
from halfwise.model.fp32_model import fp32_model, typed_nodes
from halfwise.model.model import Model, load
from halfwise.model.weights import WidenedTensor, weight_content
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Weight
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto, write_typed
from tests.models.build import model, node, value
from tests.models.dags import FEEDS, Dag, dags
from tests.models.typed_graphs import BRAIN, FLOAT, GRAPHS, HALF, mlp, samples, tensor, weights
from tests.support.backend_cases import same_bits


def wide(model: Model) -> onnx.ModelProto:
    return typed_proto(Assignment(Sites(model), {}))


def delivered(model: Model) -> onnx.ModelProto:
    return typed_proto(Assignment.all_narrow(Sites(model)))


def run(proto: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def ops(proto: onnx.ModelProto) -> list[str]:
    return [each.op_type for each in proto.graph.node]


def interface(proto: onnx.ModelProto) -> list[tuple[str, int]]:
    return [(each.name, each.type.tensor_type.elem_type) for each in (*proto.graph.input, *proto.graph.output)]


def stored(proto: onnx.ModelProto) -> list[bytes]:
    return sorted(numpy_helper.to_array(each).tobytes() for each in proto.graph.initializer)


@pytest.mark.parametrize("kind", [HALF, BRAIN], ids=["fp16", "bf16"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_widened_model_is_the_fp32_twin(name: str, kind: int) -> None:
    typed, twin = GRAPHS[name](kind), load(GRAPHS[name](FLOAT))
    found, expected = wide(fp32_model(load(typed))), wide(twin)
    onnx.checker.check_model(found, full_check=True)
    assert [op for op in ops(found) if op != "Cast"] == [op for op in ops(expected) if op != "Cast"]
    for feed in samples(typed):
        for got, wanted in zip(run(found, feed), run(expected, feed), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", [HALF, BRAIN], ids=["fp16", "bf16"])
@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_delivered_keeps_the_interface(name: str, kind: int) -> None:
    typed = GRAPHS[name](kind)
    again = delivered(fp32_model(load(typed)))
    onnx.checker.check_model(again, full_check=True)
    assert interface(again) == interface(typed)


def test_a_model_in_fp32_is_given_back_as_it_is() -> None:
    loaded = load(mlp(FLOAT))
    assert fp32_model(loaded) is loaded
    once = fp32_model(load(mlp(HALF)))
    assert fp32_model(once) is once


def test_what_the_file_holds_is_kept_beside_it() -> None:
    given = load(mlp(HALF))
    widened = fp32_model(given)
    assert widened.given is given and widened.sha256 == given.sha256
    assert widened.interface == {"x": Format.FP16, "y": Format.FP16}
    assert {spec.dtype for spec in given.inputs} == {np.dtype(np.float16)}  # the given one is as it was
    assert [node.name for node in widened.nodes] == [node.name for node in given.nodes]


# -- casts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False], ids=["io-kept", "io-fp16"])
@pytest.mark.parametrize("blocked", [[], ["Softmax", "ReduceMean"]], ids=["all", "islands"])
def test_a_converters_casts_are_gone_and_its_weights_are_not_touched(keep: bool, blocked: list[str]) -> None:
    typed = convert_float_to_float16(mlp(FLOAT), keep_io_types=keep, op_block_list=blocked)
    widened = fp32_model(load(typed))
    assert ops(wide(widened)) == ops(mlp(FLOAT))
    again = delivered(widened)
    assert interface(again) == interface(typed)
    assert ops(again).count("Cast") == (2 if keep else 0)
    assert stored(again) == stored(typed)
    for feed in samples(mlp(FLOAT)):
        np.testing.assert_array_equal(run(wide(widened), feed)[0], run(mlp(FLOAT), feed)[0])


def test_casts_that_are_all_of_a_way_stay() -> None:
    """From an input or a weight straight to an output, and to and from what is no float."""
    nodes = [
        node("Cast", "x", "y", to=FLOAT),
        node("Cast", "w", "z", to=HALF),
        node("Cast", "x", "i", to=TensorProto.INT64),
        node("Cast", "i", "back", to=HALF),
    ]
    outputs = [value("y", FLOAT), value("z", HALF), value("back", HALF)]
    typed = model(nodes, [value("x", HALF)], outputs, [tensor("w", FLOAT, [1.0, 2.0, 3.0, 4.0])])
    again = delivered(fp32_model(load(typed)))
    onnx.checker.check_model(again, full_check=True)
    assert interface(again) == interface(typed)
    feed = {"x": np.array([1.5, -2.5, 3.0, 0.0], np.float16)}
    for got, wanted in zip(run(again, feed), run(typed, feed), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_two_casts_of_one_tensor_to_two_outputs() -> None:
    nodes = [node("Relu", "x", "r"), node("Cast", "r", "y", to=FLOAT), node("Cast", "r", "z", to=FLOAT)]
    typed = model(nodes, [value("x", HALF)], [value("y", FLOAT), value("z", FLOAT), value("r", HALF)])
    again = delivered(fp32_model(load(typed)))
    onnx.checker.check_model(again, full_check=True)
    assert interface(again) == interface(typed)


# -- any typed model of our own --------------------------------------------------------------------------------------


@given(dag=dags(), feeds=FEEDS)
@settings(max_examples=40, deadline=None)
def test_a_model_typed_here_is_typed_the_same_again(dag: Dag, feeds: dict[str, Any]) -> None:
    first = typed_proto(dag.loaded())
    widened = fp32_model(load(first))
    formats = {widened.node_by_name[f"n_t{i}"]: step.fmt for i, step in enumerate(dag.steps)}
    assignment = Assignment(Sites(widened), formats, Format.FP32)
    again = typed_proto(assignment)
    assert interface(again) == interface(first)
    assert ops(again).count("Cast") <= ops(first).count("Cast")
    assert set(stored(again)) <= set(stored(first))
    rounded = {name: feed.astype(np.float16).astype(np.float32) for name, feed in feeds.items()}
    fed = rounded if dag.io is Format.FP16 else feeds
    as_given = Session(emulate(Assignment(Sites(load(first)), {}))).run(fed)
    same = Session(emulate(assignment)).run(fed)
    for name, array in as_given.items():
        assert same_bits(array, same[name])


# -- weights ---------------------------------------------------------------------------------------------------------


def test_large_weights_are_widened_when_they_are_read_and_written_as_they_are(tmp_path: Path) -> None:
    held = weights((300, 200))
    typed = model([node("MatMul", "x w", "y")], [value("x", HALF, (1, 300))], [value("y", HALF, (1, 200))])
    typed.graph.initializer.append(tensor("w", HALF, held))
    path = tmp_path / "typed.onnx"
    onnx.save(typed, path, save_as_external_data=True, location="typed.data", size_threshold=0)
    widened = fp32_model(load(path))
    weight = widened.graph.initializers["w"].const_value
    assert isinstance(weight, WidenedTensor)
    np.testing.assert_array_equal(weight.numpy(), held)
    assert weight.numpy() is not weight.numpy()  # nothing is kept
    assert Elements(weight).dtype == np.float16
    for fmt in (Format.FP16, Format.FP32, Format.BF16):
        content = b"".join(piece for piece, _ in weight_content(weight, fmt))
        assert content == held.astype(fmt.dtype).tobytes()
    written = write_typed(Assignment.all_narrow(Sites(widened)), tmp_path / "again.onnx")
    assert stored(onnx.load(written.path)) == stored(onnx.load(path))


def test_nodes_are_counted_by_what_they_write() -> None:
    typed = convert_float_to_float16(mlp(FLOAT), keep_io_types=True, op_block_list=["Softmax", "ReduceMean"])
    found = typed_nodes(load(typed))
    assert (found.nodes, found.narrow, found.counts[Format.FP32]) == (8, 6, 2)
    assert typed_nodes(load(mlp(BRAIN))).formats == (Format.BF16,)


def test_what_is_computed_within_follows_the_types_again() -> None:
    """Narrow sums inside of an operator are widened too, and the typed model may choose them as before."""
    nodes = [
        node("LayerNormalization", "x g", "n", stash_type=HALF),
        node("Attention", "n n n", "y", q_num_heads=2, kv_num_heads=2, softmax_precision=HALF),
    ]
    held = [tensor("g", HALF, [1.0] * 8)]
    typed = model(nodes, [value("x", HALF, (1, 4, 8))], [value("y", HALF, (1, 4, 8))], held, opset=23, ir_version=10)
    for proto in (wide(fp32_model(load(typed))), delivered(fp32_model(load(typed)))):
        onnx.checker.check_model(proto, full_check=True)
        names = {each.name for found in proto.graph.node for each in found.attribute}
        assert names.isdisjoint({"stash_type", "softmax_precision"})


def test_one_copy_of_a_weight_serves_every_format_that_holds_it() -> None:
    given = load(mlp(HALF))
    stored, widened = (each.graph.initializers["w0"].const_value for each in (given, fp32_model(given)))
    assert stored is not None and widened is not None
    emulator = Emulator()
    pairs = [(widened, Format.FP32), (widened, Format.FP16), (stored, Format.FP16)]
    found = [emulator.weights.of(Weight("w0", weight, fmt)) for weight, fmt in pairs]
    assert found[0] is found[1] is found[2] and found[0].dtype == np.float32
    assert emulator.weights.of(Weight("w0", widened, Format.BF16)) is not found[0]
