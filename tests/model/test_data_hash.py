"""Weights in files of their own are known by their hash, which is made piece by piece."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.model import data_hash
from halfwise.model.model import load
from halfwise.model.travel import pack, unpack
from tests.models.build import model, node, value, weight


def _saved(folder: Path) -> Path:
    table = np.random.default_rng(0).standard_normal((400, 4)).astype(np.float32)
    proto = model(
        [node("MatMul", "x w", "y")], [value("x", shape=[2, 400])], [value("y", shape=[2, 4])], [weight("w", table)]
    )
    path = folder / "m.onnx"
    onnx.save_model(proto, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    return path


@pytest.mark.parametrize("piece", [7, 1 << 24])
def test_it_is_that_of_the_whole_file(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _saved(tmp_path)
    monkeypatch.setattr(data_hash, "_READ", piece)
    assert load(path).data_sha256 == hashlib.sha256((tmp_path / "m.data").read_bytes()).hexdigest()


@pytest.mark.parametrize("threads", [1, 6])
def test_that_of_much_data_is_of_pieces(threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, content = _saved(tmp_path), (tmp_path / "m.data").read_bytes()
    monkeypatch.setattr(data_hash, "_WHOLE", 100)
    monkeypatch.setattr(data_hash, "_PIECE", 1000)
    monkeypatch.setattr(data_hash, "_READ", 300)
    monkeypatch.setattr(data_hash, "cores", lambda: threads)
    pieces = [hashlib.sha256(content[start : start + 1000]).digest() for start in range(0, len(content), 1000)]
    found = load(path)
    assert found.data_sha256 == f"64MiB:{hashlib.sha256(b''.join(pieces)).hexdigest()}"
    assert found.has_data(found.data_sha256) and found.has_data(hashlib.sha256(content).hexdigest())
    assert not found.has_data(hashlib.sha256(b"other").hexdigest()) and not found.has_data("")
    (tmp_path / "m.data").write_bytes(content[:-1] + b"\1")
    assert not load(path).has_data(found.data_sha256)


def test_what_is_made_of_a_model_shares_it(tmp_path: Path) -> None:
    found = load(_saved(tmp_path))
    inner = replace(found, watched=("y",))
    begun = found.data_hash.begun
    assert inner.data_hash.begun is begun
    arrived = unpack(pack(inner))
    assert arrived.data_sha256 == found.data_sha256 and arrived.data_hash is not found.data_hash
