"""The typed model as a file: weights of their own file, whole or not at all, refused where it cannot be written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.model.model import load
from halfwise.precision import typed_onnx
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import least_bytes, typed_proto, write_typed
from tests.models.build import model, node, value, weight
from tests.support.assignments import narrow
from tests.support.backend_cases import same_bits
from tests.support.says import Says


def two_weights() -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    return model(
        [node("MatMul", "x w", "a"), node("MatMul", "a v", "b"), node("Gather", "b i", "y", axis=1)],
        [value("x", shape=[1, 64])],
        [value("y", shape=[1, 700])],
        [
            weight("w", rng.normal(size=(64, 64)).astype(np.float32)),
            weight("v", rng.normal(size=(64, 64)).astype(np.float32)),
            weight("i", np.arange(700) % 64),
        ],
    )


def test_large_weights_go_into_a_file_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assignment = narrow(two_weights(), "n_b")
    whole = typed_proto(assignment)
    monkeypatch.setattr(typed_onnx, "EMBED_BYTES", 0)
    written = write_typed(assignment, tmp_path / "typed.onnx")
    assert written.data == tmp_path / "typed.onnx.data"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["typed.onnx", "typed.onnx.data"]
    onnx.checker.check_model(str(written.path), full_check=True)
    read = onnx.load(written.path)
    for mine, theirs in zip(read.graph.initializer, whole.graph.initializer, strict=True):
        assert np.array_equal(numpy_helper.to_array(mine), numpy_helper.to_array(theirs))
    offsets = [
        int(next(e.value for e in t.external_data if e.key == "offset"))
        for t in onnx.load(written.path, load_external_data=False).graph.initializer
    ]
    assert all(offset % 4096 == 0 for offset in offsets)
    feed = {"x": np.ones((1, 64), np.float32)}
    one = Emulator().session(assignment).run(feed)["y"]
    other = Emulator().session(Assignment(Sites(load(written.path)), {})).run(feed)["y"]
    assert same_bits(one, other)


@pytest.mark.parametrize("stored", [np.float32, np.float16])
@pytest.mark.parametrize("apart", [False, True])
def test_a_weight_that_two_names_share_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: type, apart: bool
) -> None:
    """Tied embeddings with two names for one place of the file; of another shape, it is another weight."""
    table, wide = np.random.default_rng(1).normal(size=(96, 64)).astype(stored), TensorProto.FLOAT
    taken = helper.np_dtype_to_tensor_dtype(np.dtype(stored))
    shapes = {"e": (96, 64), "h": (96, 64), "o": (64, 96)}
    products = [node("MatMul", inputs, output) for inputs, output in (("u e", "a"), ("u h", "b"), ("c o", "y"))]
    nodes = [*products[:2], node("Add", "a b", "c"), products[2]]
    proto = model(nodes, [value("u", taken, [1, 96])], [value("y", taken, [1, 96])],
                  [weight(name, table.reshape(shape)) for name, shape in shapes.items()])  # fmt: skip
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    for name in ("h", "o"):
        share(tmp_path / "m.onnx", "e", name)
    sites = Sites(load(tmp_path / "m.onnx"))
    kept = frozenset(site.node for site in sites.all if apart and site.name == "n_b")
    assignment = Assignment.all_narrow(sites, kept, Format.FP32)
    feed = {"u": np.random.default_rng(2).normal(size=(1, 96)).astype(np.float32)}
    one = Emulator().session(assignment).run(feed)["y"]
    for embedded in (typed_onnx.EMBED_BYTES, 0):
        monkeypatch.setattr(typed_onnx, "EMBED_BYTES", embedded)
        written = write_typed(assignment, tmp_path / f"typed{embedded}.onnx")
        read = onnx.load(written.path)
        onnx.checker.check_model(read, full_check=True)
        types = {tensor.name: tensor.data_type for tensor in read.graph.initializer}
        widened = {"h": wide} if apart and stored is np.float32 else {}  # FP16 of the file is widened by a cast
        assert types == {"e": TensorProto.FLOAT16, "o": TensorProto.FLOAT16, **widened}
        other = Emulator().session(Assignment(Sites(load(written.path)), {})).run(feed)["y"]
        assert same_bits(one, other)
    assert least_bytes(sites.model) == 2 * 2 * table.size


def share(path: Path, source: str, name: str) -> None:
    """One weight's external data is another one's, too."""
    proto = onnx.load(path, load_external_data=False)
    by_name = {tensor.name: tensor for tensor in proto.graph.initializer}
    del by_name[name].external_data[:]
    by_name[name].external_data.extend(by_name[source].external_data)
    onnx.save(proto, path)


def test_a_file_of_pieces_is_the_model_in_memory(tmp_path: Path) -> None:
    """Initializers that are filled piece by piece come behind the others."""
    big = np.arange(4096, dtype=np.float32).reshape(64, 64)
    proto = model([node("MatMul", "x w", "a"), node("Add", "a b", "y")], [value("x", shape=[1, 64])],
                  [value("y", shape=[1, 64])], [weight("w", big), weight("b", np.ones(64, np.float32))])  # fmt: skip
    assignment = Assignment.all_narrow(Sites(load(proto)))
    write_typed(assignment, tmp_path / "typed.onnx")
    read, whole = onnx.load(tmp_path / "typed.onnx"), typed_proto(assignment)
    for one in (read, whole):
        weights = sorted(one.graph.initializer, key=lambda each: each.name)
        del one.graph.initializer[:]
        one.graph.initializer.extend(weights)
    assert read == whole


def test_a_disk_without_room_is_refused_with_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1_000))
    proto = model([node("MatMul", "x w", "y")], [value("x", shape=[1, 64])], [value("y", shape=[1, 64])],
                  [weight("w", np.ones((64, 64), np.float32))])  # fmt: skip
    with says.raises(InputError):
        write_typed(Assignment.all_narrow(Sites(load(proto))), tmp_path / "typed.onnx")
    assert not list(tmp_path.iterdir())


def test_a_model_may_be_written_over_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(two_weights(), path, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    monkeypatch.setattr(typed_onnx, "EMBED_BYTES", 0)
    sites = Sites(load(path))
    expected = typed_proto(Assignment.all_narrow(sites))
    told: list[tuple[int, int]] = []
    write_typed(Assignment.all_narrow(sites), path, written_of=lambda *each: told.append(each))
    assert told and told == [(number, len(told)) for number in range(len(told))]
    for mine, theirs in zip(onnx.load(path).graph.initializer, expected.graph.initializer, strict=True):
        assert np.array_equal(numpy_helper.to_array(mine), numpy_helper.to_array(theirs))


def test_a_folder_that_is_not_there(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "no" / "typed.onnx"
    with pytest.raises(InputError) as caught:
        write_typed(narrow(two_weights()), path)
    says(caught.value)


@pytest.mark.parametrize("embed", [0, 1 << 30])
def test_nothing_is_left_of_a_write_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embed: int, says: Says
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(typed_onnx, "EMBED_BYTES", embed)
    monkeypatch.setattr(typed_onnx, "weight_content", fail)
    (tmp_path / "typed.onnx").write_text("before")
    assignment = narrow(two_weights())
    with says.raises(InputError):
        write_typed(assignment, tmp_path / "typed.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["typed.onnx"]
    assert (tmp_path / "typed.onnx").read_text() == "before"
