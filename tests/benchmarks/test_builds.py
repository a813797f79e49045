"""The sweep of builds tells apart what the compiler takes as given, as written, and not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import builds
from tests.models.build import model, node, value, weight
from tests.support.deployed import needs_rtx

ROWS, WIDTH = 4, 8
STORED = [weight("rows", [[0], [0]]), weight("ones", np.ones((2, WIDTH), np.float32))]


def put(folder: Path, *nodes: onnx.NodeProto) -> None:
    made = model(list(nodes), [value("x", shape=(ROWS, WIDTH))], [value("y", shape=None)], STORED, 18)
    (folder / "inputs").mkdir(parents=True)
    onnx.save(made, folder / "model.onnx")
    for seed in range(2):
        np.save(folder / "inputs" / f"{seed}.npy", np.random.default_rng(seed).normal(size=(ROWS, WIDTH)).astype("f4"))


@needs_rtx
def test_each_model_has_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "plain", node("Tanh", "x", "y"))
    put(tmp_path / "unread", node("ScatterND", "x rows ones", "y", reduction="max"))
    assert builds.main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    plain, unread = (next(r for r in printed.splitlines() if name in r).split("|") for name in ("plain", "unread"))
    assert [cell.strip() for cell in plain[2:7]] == ["0 met", "yes", "yes", "0", "0"]
    assert all(cell.strip().startswith("refused: node") for cell in unread[3:5])
    assert printed.endswith("none\n")


def test_what_builds_as_given_only_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "lost", node("Tanh", "x", "y"))
    monkeypatch.setattr(
        builds, "row", lambda folder, _: (folder.name, "1 not-met", "yes", "crashed: SIGSEGV", "0", "0", "1")
    )
    assert builds.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.endswith("lost\n")
