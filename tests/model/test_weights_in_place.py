"""Large weights stay in the model's file: the same values, without a copy, and whatever is odd is read as before."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from halfwise.core.errors import InputError
from halfwise.core.protobuf_wire import Bytes, Field, fields
from halfwise.model import proto_file, weights_in_place
from halfwise.model.model import Model, load
from halfwise.model.weights_in_place import without_weights

_ROWS, _COLUMNS = 300, 64  # FP32: more than a weight has to have
_WHOLE = np.arange(_ROWS * _COLUMNS, dtype=np.float32).reshape(_ROWS, _COLUMNS)


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proto_file, "_LARGE", 1)


def _model(*weights: TensorProto, shape: tuple[int, ...] = (2, _ROWS)) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", weights[0].name], ["y"])]
    nodes += [helper.make_node("Identity", [each.name], [f"{each.name}_out"]) for each in weights[1:]]
    outputs = [helper.make_tensor_value_info("y", 1, None)]
    outputs += [helper.make_tensor_value_info(f"{each.name}_out", each.data_type, None) for each in weights[1:]]
    inputs = [helper.make_tensor_value_info("x", 1, shape)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _weight(array: NDArray[Any] = _WHOLE, name: str = "w") -> TensorProto:
    return onnx.numpy_helper.from_array(array, name)


def _tensor(model: Model, name: str = "w") -> ir.TensorProtocol:
    held = model.graph.initializers[name].const_value
    assert held is not None
    return held


def test_a_large_weight_is_mapped_from_the_file_itself(tmp_path: Path) -> None:
    small = _weight(np.ones(8, np.float32), "small")
    onnx.save(_model(_weight(), small), tmp_path / "m.onnx")
    model = load(tmp_path / "m.onnx")
    held = _tensor(model)
    assert isinstance(held, ir.ExternalTensor) and Path(held.path) == tmp_path / "m.onnx"
    assert np.array_equal(held.numpy(), _WHOLE) and not held.numpy().flags.owndata
    assert isinstance(_tensor(model, "small"), ir.TensorProtoTensor)


def test_the_model_has_no_data_files_and_the_hash_of_its_file(tmp_path: Path) -> None:
    onnx.save(_model(_weight()), tmp_path / "m.onnx")
    here, there = load(tmp_path / "m.onnx"), load(onnx.load(tmp_path / "m.onnx"))
    assert here.files == () and here.data_sha256 == "" and here.weight_bytes == there.weight_bytes == _WHOLE.nbytes
    assert here.sha256 == hashlib.sha256((tmp_path / "m.onnx").read_bytes()).hexdigest()


def test_no_hash_is_made_of_a_file_that_changed_since(tmp_path: Path) -> None:
    onnx.save(_model(_weight()), tmp_path / "m.onnx")
    model = load(tmp_path / "m.onnx")
    onnx.save(_model(_weight(_WHOLE + 1), _weight(np.ones(8, np.float32), "more")), tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"m\.onnx was changed while"):
        _ = model.sha256


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FN])
def test_types_that_numpy_does_not_know(kind: int, tmp_path: Path) -> None:
    size = 1 << 18
    content = np.random.default_rng(0).integers(0, 256, size * ir.DataType(kind).bitwidth // 8, np.uint8).tobytes()
    tensor = TensorProto(name="odd", data_type=kind, dims=[size], raw_data=content)
    onnx.save(_model(_weight(), tensor), tmp_path / "m.onnx")
    held = _tensor(load(tmp_path / "m.onnx"), "odd")
    assert isinstance(held, ir.ExternalTensor) and held.tobytes() == content
    assert np.array_equal(held.numpy().view(np.uint8), ir.TensorProtoTensor(tensor).numpy().view(np.uint8))


def _as_floats(model: onnx.ModelProto) -> None:
    (tensor,) = model.graph.initializer
    tensor.float_data.extend(np.frombuffer(tensor.raw_data, np.float32).tolist())
    tensor.ClearField("raw_data")


def _in_a_second_graph(model: onnx.ModelProto) -> bytes:
    """A message that is there twice is merged."""
    one = onnx.ModelProto()
    one.graph.doc_string = "more"
    return model.SerializeToString() + one.SerializeToString()


def test_an_initializer_of_a_body(tmp_path: Path) -> None:
    make, value = helper.make_node, helper.make_tensor_value_info
    bodies = {
        f"{name}_branch": helper.make_graph(
            [make("MatMul", ["x", "w"], ["y"])], name, [], [value("y", 1, None)], [_weight()]
        )
        for name in ("then", "else")
    }
    graph = helper.make_graph(
        [make("If", ["which"], ["y"], **bodies)],
        "g",
        [value("x", 1, [2, _ROWS]), value("which", 9, [])],
        [value("y", 1, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    held = [each.const_value for each in load(tmp_path / "m.onnx").initializers()]
    assert [isinstance(each, ir.ExternalTensor) and np.array_equal(each.numpy(), _WHOLE) for each in held] == [
        True,
        True,
    ]


@pytest.mark.parametrize("within", [False, True])
def test_a_constant_as_some_converters_write_weights(within: bool, tmp_path: Path) -> None:
    make, value = helper.make_node, helper.make_tensor_value_info
    constant = make("Constant", [], ["w"], value=_weight())
    product = make("MatMul", ["x", "w"], ["y"])
    nodes = [constant, product]
    if within:
        body = helper.make_graph(nodes, "then", [], [value("y", 1, None)])
        other = helper.make_graph([constant, make("MatMul", ["x", "w"], ["y"])], "else", [], [value("y", 1, None)])
        nodes = [make("If", ["which"], ["y"], then_branch=body, else_branch=other)]
    inputs = [value("x", 1, [2, _ROWS]), *([value("which", 9, [])] if within else [])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", 1, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    held = [each.const_value for each in load(tmp_path / "m.onnx").initializers()]
    assert len(held) == 1 + within
    for each in held:
        assert isinstance(each, ir.ExternalTensor) and np.array_equal(each.numpy(), _WHOLE)


@pytest.mark.parametrize(
    "write",
    [
        lambda model: (_as_floats(model), model.SerializeToString())[1],
        _in_a_second_graph,
    ],
)
def test_what_is_written_otherwise_is_parsed_whole(write: Callable[[onnx.ModelProto], bytes], tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(write(_model(_weight())))
    held = _tensor(load(tmp_path / "m.onnx"))
    assert not isinstance(held, ir.ExternalTensor) and np.array_equal(held.numpy(), _WHOLE)


def test_a_file_of_two_names(tmp_path: Path) -> None:
    """As backups and package managers make them."""
    onnx.save(_model(_weight()), tmp_path / "m.onnx")
    os.link(tmp_path / "m.onnx", tmp_path / "again.onnx")
    held = _tensor(load(tmp_path / "m.onnx"))
    assert isinstance(held, ir.ExternalTensor) and np.array_equal(held.numpy(), _WHOLE)


def test_a_link_to_a_file_elsewhere_as_caches_of_downloads_have_them(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    onnx.save(_model(_weight()), tmp_path / "blobs" / "0123")
    (tmp_path / "m.onnx").symlink_to(tmp_path / "blobs" / "0123")
    held = _tensor(load(tmp_path / "m.onnx"))
    assert isinstance(held, ir.ExternalTensor) and np.array_equal(held.numpy(), _WHOLE)


def test_a_link_with_weights_in_its_file_and_beside_it(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    far = TensorProto(name="far", data_type=1, dims=[_WHOLE.size], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "far.data"), ("length", str(_WHOLE.nbytes))):
        far.external_data.add(key=key, value=value)
    onnx.save(_model(_weight(), far), tmp_path / "blobs" / "0123")
    (tmp_path / "m.onnx").symlink_to(tmp_path / "blobs" / "0123")
    _WHOLE.tofile(tmp_path / "far.data")
    model = load(tmp_path / "m.onnx")
    assert model.files == (tmp_path / "far.data",)
    assert all(isinstance(_tensor(model, name), ir.ExternalTensor) for name in ("w", "far"))
    assert np.array_equal(_tensor(model).numpy(), _WHOLE)
    assert np.array_equal(_tensor(model, "far").numpy(), _WHOLE.ravel())


@pytest.mark.parametrize("change", [{"dims": [_ROWS, _COLUMNS + 1]}, {"data_type": TensorProto.DOUBLE}, {"dims": [-1]}])
def test_content_that_does_not_fit_is_refused_as_in_a_small_file(change: dict[str, Any], tmp_path: Path) -> None:
    tensor = _weight()
    for name, value in change.items():
        tensor.ClearField(name)
        tensor.MergeFrom(TensorProto(**{name: value}))
    model = _model(tensor)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(InputError) as here:
        load(tmp_path / "m.onnx")
    with pytest.raises(InputError) as there:
        load(model)
    assert str(here.value).partition(": ")[2] == str(there.value).partition(": ")[2]


def test_the_lists_of_trees_are_not_read_number_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of fields, none of which holds a weight."""
    proto = _model(_weight())
    lists: dict[str, Any] = {"ints": range(50_000), "floats": [0.5] * 50_000, "texts": ["BRANCH_LEQ"] * 50_000}
    proto.graph.node.append(helper.make_node("Trees", ["x"], ["t"], domain="acme", **lists))
    read = 0

    def counted(data: Bytes, start: int, end: int) -> Iterator[Field]:
        nonlocal read
        for each in fields(data, start, end):
            read += 1
            yield each

    monkeypatch.setattr(weights_in_place, "fields", counted)
    light = without_weights(memoryview(proto.SerializeToString()), "m")
    assert light is not None and read < 200
    made = onnx.load_from_string(light)
    assert made.graph.node[-1] == proto.graph.node[-1] and made.graph.initializer[0].external_data


@given(st.data())
def test_damaged_bytes_are_read_as_the_library_reads_them(data: st.DataObject) -> None:
    content = bytearray(_model(_weight(), _weight(_WHOLE[:280], "v")).SerializeToString())
    heads = [content.index(each.tobytes()[:512]) for each in (_WHOLE, _WHOLE[:280])]
    for _ in range(data.draw(st.integers(0, 3))):
        near = data.draw(st.sampled_from([0, len(content) - 60, *(head - 40 for head in heads)]))
        content[near + data.draw(st.integers(0, 39))] = data.draw(st.integers(0, 255))
    whole, light = onnx.ModelProto(), without_weights(memoryview(bytes(content)), "m.onnx")
    try:
        whole.ParseFromString(bytes(content))
    except Exception:
        whole = None  # type: ignore[assignment]
    if light is None:
        return
    try:
        found = onnx.ModelProto.FromString(light)
    except Exception:
        assert whole is None
        return
    if whole is not None:
        _bring(found, bytes(content))
        assert found == whole


def _bring(light: onnx.ModelProto, content: bytes) -> None:
    for tensor in light.graph.initializer:
        told = {entry.key: entry.value for entry in tensor.external_data}
        if told.get("location") == "m.onnx":
            start = int(told["offset"])
            tensor.raw_data = content[start : start + int(told["length"])]
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


def test_all_weights_share_one_mapping_of_their_file(tmp_path: Path) -> None:
    onnx.save(_model(_weight(), _weight(_WHOLE + 1, "v")), tmp_path / "m.onnx")
    model = load(tmp_path / "m.onnx")
    first, second = _tensor(model), _tensor(model, "v")
    assert isinstance(first, ir.ExternalTensor) and isinstance(second, ir.ExternalTensor)
    assert np.array_equal(first.numpy(), _WHOLE) and np.array_equal(second.numpy(), _WHOLE + 1)
    assert first.raw is second.raw and first.tobytes() == _WHOLE.tobytes()


def test_a_file_that_is_replaced_does_not_change_what_was_loaded(tmp_path: Path) -> None:
    onnx.save(_model(_weight()), tmp_path / "m.onnx")
    onnx.save(_model(_weight(-_WHOLE)), tmp_path / "later.onnx")
    model = load(tmp_path / "m.onnx")
    (tmp_path / "later.onnx").replace(tmp_path / "m.onnx")
    assert np.array_equal(_tensor(model).numpy(), _WHOLE)
