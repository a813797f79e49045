"""Weights that change while a verb reads them: one line, and no answer made of two models."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.core.errors import InputError
from halfwise.model import data_hash
from halfwise.verbs.bisect.run import bisect
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.stages.run import stages
from tests.models.build import model, node, value, weight

FEEDS = [{"x": np.full((1, 64), 1.0 + index, np.float32)} for index in range(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    proto = model([node("MatMul", "x w", "a"), node("Relu", "a", "y")], [value("x", shape=[1, 64])],
                  [value("y", shape=[1, 64])], [weight("w", np.eye(64, dtype=np.float32))])  # fmt: skip
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    "asked",
    [
        lambda path, notify: bisect(path, "ort-cpu", FEEDS, notify=notify),
        lambda path, notify: stages(path, FEEDS, cut=["a"], notify=notify),
    ],
)
def test_there_is_no_answer(path: Path, asked: Callable[[Path, Callable[..., None]], Any]) -> None:
    def changes(*_: object) -> None:
        with path.with_name("w.bin").open("ab") as opened:
            opened.write(b"\0")

    with pytest.raises(InputError, match=r"w\.bin was changed"):
        asked(path, changes)


def test_the_wait_for_the_hash_of_slow_files_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Future[str]):
        def done(self) -> bool:
            return False

    made = Slow()
    made.set_result("0" * 64)
    monkeypatch.setattr(data_hash, "beside", lambda _: made)
    said: list[str] = []
    fix(path, FEEDS, out=path.parent / "out", notify=said.append)
    step = next(number for number, text in enumerate(said) if "SHA-256" in text)
    assert "writing" in said[step + 1]
