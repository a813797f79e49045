"""The table of limits: the page says what the code holds to, and what is over a limit is one line."""

from __future__ import annotations

import re
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from halfwise.compiler.buildlog.reader import read_log
from halfwise.compiler.layers import read_layers
from halfwise.core import limits
from halfwise.core.errors import InputError
from halfwise.core.json_text import parse_json, read_json
from halfwise.emulation.ort import Session
from halfwise.model.inputs.samples import load_samples
from halfwise.model.model import load
from halfwise.precision.plan import read_plan
from halfwise.verbs.verify import verify
from tests.models.build import f32, model, node, value
from tests.support.paths import ROOT
from tests.support.says import Says


def test_the_page_has_every_limit() -> None:
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    stated = re.findall(r"\| ([\d,]+)[^|]*\| `(\w+)` \|", page)
    told = {name: int(number.replace(",", "")) for number, name in stated}
    held = {name: held for name, held in vars(limits).items() if name.isupper()}
    assert told == held


def exp(name: str = "x", **more: Any) -> Any:
    return model([node("Exp", name, "y")], [value(name, **more)], [value("y", **more)])


def test_a_name_of_any_length(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    assert load(exp("x" * limits.LONGEST_NAME)).inputs
    with says.raises(InputError):
        load(exp("x" * (limits.LONGEST_NAME + 1)))


def test_many_nodes(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    monkeypatch.setattr(limits, "MOST_NODES", 50)
    nodes = [helper.make_node("Exp", [f"t{i}"], [f"t{i + 1}"]) for i in range(51)]
    assert load(model(nodes[:50], [value("t0")], [value("t50")])).stored_nodes == 50
    with says.raises(InputError):
        load(model(nodes, [value("t0")], [value("t51")]))


def test_a_million_nodes_and_one(tmp_path: Path, says: Says) -> None:
    """Refused before anything looks at them."""
    graph = model([node("Exp", "x", "y")], [value("x")], [value("y")]).graph
    one = onnx.GraphProto(node=graph.node).SerializeToString()
    content = one * limits.MOST_NODES + graph.SerializeToString()
    path = tmp_path / "m.onnx"
    head = onnx.ModelProto(ir_version=9, opset_import=[helper.make_opsetid("", 17)]).SerializeToString()
    path.write_bytes(head + b"\x3a" + varint(len(content)) + content)
    with says.raises(InputError):
        load(path)


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def test_a_tensor_made_twice_among_many_is_found_at_once(says: Says) -> None:
    nodes = [helper.make_node("Exp", ["x"], [f"t{i}"]) for i in (*range(20_000), 19_999)]
    with says.raises(InputError):
        load(model(nodes, [value("x")], [value("t0")]))


def test_a_model_of_many_inputs() -> None:
    names = [f"i{index}" for index in range(10_000)]
    proto = model([node("Sum", " ".join(names), "y")], [value(name) for name in names], [value("y")])
    assert len(load(proto).inputs) == 10_000


def of_rank(rank: int) -> Iterator[onnx.ModelProto]:
    """An input, one in a sequence, a weight, a constant and a sparse weight of so many dimensions."""
    shape = [1] * rank
    weight = helper.make_tensor("w", 1, shape, [2.0])
    made = [value("y", shape=None)]
    yield exp(shape=shape)
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, shape))
    at = helper.make_tensor("at", 7, [], [0])
    yield model([node("SequenceAt", "x at", "y")], [helper.make_value_info("x", sequence)], made, [at])
    yield model([node("Mul", "x w", "y")], [value("x")], made, [weight])
    yield model([node("Constant", "", "w", value=weight), node("Mul", "x w", "y")], [value("x")], made)
    one = helper.make_tensor("w", 1, [1], [2.0]), helper.make_tensor("", 7, [1], [0])
    few = model([node("Mul", "x w", "y")], [value("x")], made)
    few.graph.sparse_initializer.append(helper.make_sparse_tensor(*one, shape))
    yield few


def test_dimensions(says: Says) -> None:
    for proto in of_rank(limits.MOST_DIMENSIONS):
        assert load(proto).inputs
    for proto in of_rank(limits.MOST_DIMENSIONS + 1):
        with says.raises(InputError):
            load(proto)


def test_dimensions_that_only_a_run_tells(says: Says) -> None:
    for rank in (limits.MOST_DIMENSIONS, limits.MOST_DIMENSIONS + 1):
        shape = helper.make_tensor("shape", 7, [rank], [1] * rank)
        wide = model([node("Reshape", "x shape", "y")], [value("x", shape=[1])], [value("y", shape=None)], [shape])
        feeds = {"x": np.ones(1, np.float32)}
        if rank == limits.MOST_DIMENSIONS:
            assert Session(wide).run(feeds)["y"].ndim == rank
        else:
            with says.raises(InputError):
                Session(wide).run(feeds)


def test_a_file_that_is_no_protobuf_for_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(exp().SerializeToString())
    monkeypatch.setattr(limits, "LARGEST_MODEL_FILE", path.stat().st_size - 1)
    with says.raises(InputError):
        load(path)


@pytest.mark.parametrize("size", [1 << 29, 1 << 62])
def test_generated_inputs(size: int) -> None:
    with pytest.raises(InputError, match="give real inputs with --inputs"):
        load_samples(load(exp(shape=[size])).inputs, None)


def a_bomb(path: Path) -> Path:
    """8 MiB that take 8 KiB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array(file, np.zeros(1 << 21, np.float32))
    assert path.stat().st_size < 1 << 14
    return path


def test_arrays_that_unpack_to_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    bomb = a_bomb(tmp_path / "b.npz")
    monkeypatch.setattr(limits, "LARGEST_ARRAYS", 1 << 20)
    with says.raises(InputError):
        load_samples(load(exp(shape=[1 << 21])).inputs, bomb)
    with says.raises(InputError):
        verify(bomb, bomb)


def test_an_archive_that_says_less_than_it_holds(tmp_path: Path) -> None:
    """The reader stops where the archive says that the array ends."""
    bomb = a_bomb(tmp_path / "b.npz")
    content = bytearray(bomb.read_bytes())
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = content.rindex(mark) + place
        content[at : at + 4] = struct.pack("<I", 1000)
    bomb.write_bytes(bytes(content))
    with pytest.raises(InputError, match="is damaged"):
        load_samples(load(exp(shape=[1 << 21])).inputs, bomb)


def test_a_header_that_promises_more_than_there_is(tmp_path: Path) -> None:
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"
    head += b" " * (53 + 64 - len(head)) + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(64))
    with pytest.raises(InputError, match="is damaged"):
        load_samples(load(exp()).inputs, tmp_path / "x.npy")


def test_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    depth = limits.DEEPEST_JSON
    assert parse_json("[" * depth + "]" * depth)
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        parse_json("[" * (depth + 1) + "]" * (depth + 1))
    plan = tmp_path / "p.json"
    plan.write_text('{"schema": "halfwise.plan/1", "fp32_nodes": []}')
    assert read_plan(plan).nodes == () and read_json(plan)
    monkeypatch.setattr(limits, "LARGEST_JSON", 8)
    with says.raises(ValueError):
        read_json(plan)


def test_many_samples_are_picked_from_without_being_read(tmp_path: Path) -> None:
    class Samples:
        def __iter__(self) -> Any:
            for index in range(100_000):
                yield {"x": f32(index, 1, 2, 3)}

    found = load_samples(load(exp()).inputs, Samples())
    assert len(found.all) == 16


def sparse(path: Path, head: bytes, size: int, tail: bytes = b"") -> Path:
    """A file of zeros between its ends, which takes no room on the disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
        file.seek(size)
        file.write(tail)
    return path


def test_layer_information_that_is_none_for_its_size(tmp_path: Path, says: Says) -> None:
    with says.raises(InputError):
        read_layers(sparse(tmp_path / "layers.json", b'{"Layers": [', limits.LARGEST_JSON + 1))


def test_a_log_without_line_ends_is_read_in_constant_memory(tmp_path: Path) -> None:
    head = b"x" * (1 << 20)  # what holds zeros from its start on is no text
    path = sparse(
        tmp_path / "build.log", head, 3 * limits.LONGEST_LOG_LINE, b"\n[08/01/2026-10:00:00] [I] [TRT] built\n"
    )
    tracemalloc.start()
    try:
        report = read_log(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.recognised and report.lines == 2 and most < 5 * limits.LONGEST_LOG_LINE


def test_a_name_of_many_bytes_is_refused_by_its_length(tmp_path: Path, says: Says) -> None:
    """A node's, of 64 MiB."""
    size = 1 << 26
    proto = onnx.ModelProto(ir_version=9, opset_import=[helper.make_opsetid("", 17)]).SerializeToString()
    long = helper.make_node("Exp", ["x"], ["t"]).SerializeToString() + b"\x1a" + varint(size)
    named = exp().graph.SerializeToString() + b"\x0a" + varint(len(long) + size) + long
    head = proto + b"\x3a" + varint(len(named) + size) + named
    path = sparse(tmp_path / "m.onnx", head, len(head) + size)
    with says.raises(InputError):
        load(path)
