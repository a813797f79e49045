"""The same question has the same answer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight


def saved(folder: Path) -> Path:
    """Products large enough for several threads, a norm that overflows in FP16, and a softmax."""
    numbers = np.random.default_rng(0)
    wide = [weight(name, (numbers.standard_normal((256, 256)) / 16).astype(np.float32)) for name in ("v", "w")]
    nodes = [
        node("MatMul", "x v", "h"),
        node("Mul", "h loud", "l"),
        node("Mul", "l l", "q"),
        node("ReduceMean", "q", "m", axes=[-1]),
        node("Sqrt", "m", "r"),
        node("Div", "l r", "n"),
        node("MatMul", "n w", "p"),
        node("Softmax", "p", "y"),
    ]
    weights = [*wide, weight("loud", np.float32(900))]
    shape = [64, 256]
    onnx.save(model(nodes, [value("x", shape=shape)], [value("y", shape=shape)], weights), folder / "m.onnx")
    return folder / "m.onnx"


def answer(path: Path, order: int, out: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The document and the files, times apart. Samples are written in another order."""
    samples = out.with_suffix(".samples")
    samples.mkdir()
    for number in range(6)[::order]:
        values = np.random.default_rng(number).standard_normal((64, 256)).astype(np.float32)
        np.savez(samples / f"{number}.npz", x=values)
    document = fix(path, samples, out=out, max_runs=6).to_json()
    document.pop("cost")
    document = json.loads(json.dumps(document).replace(str(out), "out"))
    files = {each.name: each.read_bytes() for each in sorted(out.iterdir()) if each.suffix != ".html"}
    return document, files


def test_the_same_bytes_over_runs_and_orders_and_the_same_model_over_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last digits of errors depend on the threads of ONNX Runtime's FP32 kernels; what is decided does not."""
    path = saved(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    first = answer(path, 1, tmp_path / "a")
    assert len(first[1]) >= 2 and first[0]["status"] == "met"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    document, files = answer(path, 1, tmp_path / "c")
    assert files["m.fp16.onnx"] == first[1]["m.fp16.onnx"]
    assert [document[key] for key in ("status", "fp32_nodes")] == [first[0][key] for key in ("status", "fp32_nodes")]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda *given: sorted(listed(*given), reverse=True))
    assert answer(path, -1, tmp_path / "b") == first
