"""A file whose name is no Unicode text, as of an old archive, is run like any other."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise import fix, verify
from halfwise.backends.mapped_file import mapped
from tests.models.build import model, node, value, weight

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names are text there")

FEEDS = [{"x": np.random.default_rng(seed).standard_normal((2, 64)).astype(np.float32)} for seed in range(4)]


def named(folder: Path, kind: str = "MatMul") -> Path:
    inside = folder / os.fsdecode(b"mod\xe8les")
    inside.mkdir()
    nodes = [node(kind, "x w", "h"), node("Relu", "h", "y")]
    given = model(nodes, [value("x", shape=(2, 64))], [value("y", shape=(2, 64))], [weight("w", np.eye(64, dtype="f"))])
    path = inside / os.fsdecode(b"mod\xe8le.onnx")
    path.write_bytes(given.SerializeToString())
    return path


def test_what_is_written_under_such_a_name_is_run(tmp_path: Path) -> None:
    path = named(tmp_path)
    made = fix(path, FEEDS, out=path.parent / "out")
    assert made.good and made.delivered is not None and made.delivered.verdict is not None
    assert made.files.typed is not None
    found = verify(path, made.files.typed.path, FEEDS, backend="ort-cpu")
    assert found.met


def test_large_weights_are_not_mapped_by_a_name_that_cannot_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfwise.backends.mapped_file.LEAST", 1)
    assert mapped(named(tmp_path), None) is None


def test_random_nodes_draw_under_such_a_name_too(tmp_path: Path) -> None:
    path = named(tmp_path, "Mul")
    proto = onnx.load_from_string(path.read_bytes())
    proto.graph.node.append(node("RandomNormalLike", "y", "z"))
    proto.graph.node.append(node("Add", "y z", "sum"))
    proto.graph.output.append(value("sum", shape=(2, 64)))
    proto.graph.initializer[0].CopyFrom(weight("w", np.ones((1, 64), np.float32)))
    path.write_bytes(proto.SerializeToString())
    assert fix(path, FEEDS, out=tmp_path / "out").delivered is not None
