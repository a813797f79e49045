"""Weights in files of their own are known by their hash, which is made piece by piece."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.model import model as loading
from tests.models.build import model, node, value, weight


@pytest.mark.parametrize("piece", [7, 1 << 24])
def test_it_is_that_of_the_whole_file(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(0).standard_normal((400, 4)).astype(np.float32)
    proto = model(
        [node("MatMul", "x w", "y")], [value("x", shape=[2, 400])], [value("y", shape=[2, 4])], [weight("w", table)]
    )
    onnx.save_model(proto, str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.data", size_threshold=0)
    monkeypatch.setattr(loading, "_PIECE_BYTES", piece)
    expected = hashlib.sha256((tmp_path / "m.data").read_bytes()).hexdigest()
    assert loading.load(tmp_path / "m.onnx").data_sha256 == expected
