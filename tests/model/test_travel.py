"""Models on their way to another process."""

from __future__ import annotations

import pickle
import sys
import types
from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from halfwise.core.errors import HalfwiseError
from halfwise.model import travel
from halfwise.model.model import Model, load
from halfwise.model.travel import pack, unpack
from tests.models.build import f32, model, node, value, weight


def branching() -> Model:
    """A weight is read in both bodies, and each has one of its own."""
    bodies = [
        helper.make_graph([node(f"{op}", "x w", f"y_{op}")], op, [], [value(f"y_{op}")], [weight(f"c_{op}", f32(1.0))])
        for op in ("Add", "Mul")
    ]
    nodes = [node("If", "yes", "h", then_branch=bodies[0], else_branch=bodies[1]), node("Exp", "h", "y")]
    weights = [weight("w", f32(1, 2, 3, 4)), weight("yes", np.array(True))]
    return load(model(nodes, [value("x")], [value("y")], weights))


def test_nodes_and_tensors_are_those_of_the_model_that_arrives() -> None:
    sent = branching()
    everything = [*sent.nodes, *(out for node in sent.nodes for out in node.outputs), *sent.graph.inputs, sent.graph]
    arrived, parts = unpack(pack((sent, everything)))
    assert [part.name for part in parts] == [part.name for part in everything]
    assert parts[: len(arrived.nodes)] == list(arrived.nodes) and parts[-1] is arrived.graph
    assert [value.type for value in arrived.graph.outputs] == [value.type for value in sent.graph.outputs]
    assert ir.to_proto(arrived.ir).SerializeToString() == ir.to_proto(sent.ir).SerializeToString()
    assert (arrived.sha256, arrived.weight_bytes) == (sent.sha256, sent.weight_bytes)


def test_a_node_of_no_model_does_not_travel() -> None:
    with pytest.raises(pickle.PicklingError, match="of no model"):
        pack(branching().nodes[0])


def large() -> onnx.ModelProto:
    weights = [weight("w", np.arange(1024, dtype=np.float32)), weight("b", f32(1.0))]
    nodes = [node("Mul", "x w", "h"), node("Add", "h b", "y")]
    return model(nodes, [value("x", shape=[1024])], [value("y", shape=None)], weights)


def test_large_weights_stay_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(travel, "_MOST_BYTES", 1 << 11)
    sent = load(large())
    arrived = unpack(pack(sent))
    tensors = {value.name: value.const_value for value in arrived.initializers()}
    assert arrived.weight_bytes == sent.weight_bytes and tensors["b"].numpy() == 1.0
    with pytest.raises(HalfwiseError, match="the values of 'w' stayed"):
        tensors["w"].numpy()
    assert all(value.const_value.numpy() is not None for value in sent.initializers())
    with pytest.raises(pickle.PicklingError):
        pack(sent, whole=True)


def test_external_weights_are_read_where_they_are(tmp_path: Path) -> None:
    onnx.save(large(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=64)
    arrived = unpack(pack(load(tmp_path / "m.onnx")))
    (tensor,) = (value.const_value for value in arrived.initializers() if value.name == "w")
    assert isinstance(tensor, ir.ExternalTensor) and np.array_equal(tensor.numpy(), np.arange(1024))


KINDS = ["float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "int64", "int8", "bool", "int4", "complex64"]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_go_beside_the_pickle_bit_for_bit(kind: str) -> None:
    dtype = getattr(ml_dtypes, kind, None) or np.dtype(kind)
    values = (np.arange(4096).reshape(64, 64) % 7).astype(dtype)
    stored = weight("w", values)
    stored.doc_string = "what it is"
    sent = ir.from_proto(model([node("Identity", "w", "y")], [], [value("y", stored.data_type, [64, 64])], [stored]))
    packed = pack(sent)
    arrived = unpack(packed)
    tensor = arrived.graph.initializers["w"].const_value
    assert tensor.dtype == sent.graph.initializers["w"].const_value.dtype and tensor.doc_string == "what it is"
    assert tensor.tobytes() == stored.raw_data and np.array_equal(tensor.numpy(), values)
    assert ir.to_proto(arrived).SerializeToString() == ir.to_proto(sent).SerializeToString()
    assert len(packed.body) < 2000 or kind == "int4"


def test_a_weight_that_models_share_and_an_array_go_once() -> None:
    sent = load(large())
    array = np.arange(512.0)
    packed = pack((sent, sent.ir.clone(), array, [array]))
    first, second, arrived, (again,) = unpack(packed)
    assert [memoryview(each).nbytes for each in packed.arrays] == [4096, 4096]
    assert again is arrived and np.array_equal(arrived, array)
    for graph in (first.graph, second.graph):
        assert np.array_equal(graph.initializers["w"].const_value.numpy(), np.arange(1024))


def test_no_module_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for an object that says no home: a search loads what is put off."""

    class Searched(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            asked.append(name)
            raise AttributeError(name)

    asked: list[str] = []
    others = list(sys.modules)
    monkeypatch.setitem(sys.modules, "searched_first", Searched("searched_first"))
    for name in others:
        sys.modules[name] = sys.modules.pop(name)
    assert unpack(pack((msgspec.UNSET, np.float32, np.ones(3), len)))[0] is msgspec.UNSET
    assert "UNSET" not in asked
