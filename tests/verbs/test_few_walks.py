"""A large model is walked for all inputs at once: its weights are read a few times, however many inputs there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise import fix, verify
from halfwise.emulation import emulate, streamed
from halfwise.emulation.streamed import StreamedSession
from tests.models.build import model, node, value, weight


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many inputs each walk carried."""
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    monkeypatch.setattr(emulate, "INLINE_ELEMENTS", 8)
    monkeypatch.setattr(streamed, "LARGE_BYTES", 1)
    seen: list[int] = []
    walk = StreamedSession._walk

    def counted(self: StreamedSession, feeds: Any) -> Any:
        if feeds:
            seen.append(len(feeds))
        return walk(self, feeds)

    monkeypatch.setattr(StreamedSession, "_walk", counted)
    yield seen


def saved(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) / 8 for shape in ((16, 64), (64, 16)))
    proto = model(
        [node("MatMul", "x a", "u"), node("Relu", "u", "v"), node("MatMul", "v b", "y")],
        [value("x", shape=["batch", 16])],
        [value("y", shape=["batch", 16])],
        [weight("a", a), weight("b", b)],
    )
    onnx.save(proto, folder / "model.onnx")
    return folder / "model.onnx"


def test_all_inputs_go_through_together(walks: list[int], tmp_path: Path) -> None:
    path, rng = saved(tmp_path), np.random.default_rng(1)
    inputs = [{"x": rng.standard_normal((3, 16)).astype(np.float32)} for _ in range(5)]
    found = fix(path, inputs, out=tmp_path / "out")
    assert found.met and found.files.typed is not None
    assert walks[:2] == [5, 5] and walks.count(5) == 3  # FP32, plain FP16, with less rounding
    walks.clear()
    told: list[tuple[int, int, int]] = []
    verified = verify(path, found.files.typed.path, inputs, notify=lambda *done: told.append((*done, len(walks))))
    assert verified.met and walks == [5, 5, 5]
    assert told == [(1, 5, 1), (2, 5, 2), (3, 5, 2), (4, 5, 3), (5, 5, 3)]  # also before the first is judged
