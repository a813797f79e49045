"""A backend that is not installed is told before the model runs on the CPU, which may take minutes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from halfwise import bisect, verify
from halfwise.core.errors import MissingBackend
from tests.support.bisections import chain


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("halfwise.compiler.rtx.available", lambda: False)
    onnx.save(chain(), tmp_path / "chain.onnx")
    return tmp_path / "chain.onnx"


def unread() -> Iterator[Mapping[str, Any]]:
    yield pytest.fail("the inputs are read")


def test_verify(model: Path) -> None:
    with pytest.raises(MissingBackend, match="TensorRT-RTX is not installed"):
        verify(model, model, unread(), backend="rtx")


def test_bisect(model: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingBackend, match="TensorRT-RTX is not installed"):
        bisect(model, "rtx", unread(), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
