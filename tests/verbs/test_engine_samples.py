"""What the build script runs its engine on: the folder given where it serves, else the samples as they were read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise import fix
from halfwise.report.answer import engine_loop
from halfwise.verbs.verify import verify
from tests.models.build import model, node, value, weight

SAMPLES = [np.random.default_rng(seed).standard_normal((1, 8)).astype(np.float32) for seed in range(3)]


def product(folder: Path) -> Path:
    weights = weight("w", np.random.default_rng(9).standard_normal((8, 4)).astype(np.float32))
    made = model([node("MatMul", "x w", "y")], [value("x", shape=(1, 8))], [value("y", shape=(1, 4))], [weights])
    onnx.save(made, folder / "m.onnx")
    return folder / "m.onnx"


def given(kind: str, folder: Path) -> Any:
    folder.mkdir()
    for number, array in enumerate(SAMPLES):
        if kind == "npy":
            np.save(folder / f"{number}.npy", array)
        else:
            np.savez(folder / f"{number}.npz", x=array[0] if kind == "unbatched" else array)
    kinds = {"files": [str(path) for path in sorted(folder.iterdir())], "dictionaries": [{"x": x} for x in SAMPLES]}
    return kinds.get(kind, folder)


@pytest.mark.parametrize("kind", ["folder", "files", "npy", "unbatched", "dictionaries", "synthetic"])
def test_the_script_runs_on_what_was_judged(kind: str, tmp_path: Path) -> None:
    path, inputs = product(tmp_path), given(kind, tmp_path / "in")
    result = fix(path, None if kind == "synthetic" else inputs, out=tmp_path / "out", target="trt-8.6@t4")
    loop = engine_loop(result)
    assert loop is not None
    ran, judged = loop
    folder = Path(ran[-1])
    assert ran[:3] == ["python", str(tmp_path / "out" / "m.build.py"), "--run"] and judged[-1] == str(folder)
    assert folder == (inputs if kind == "folder" else tmp_path / "out" / "m.samples")
    held = [np.load(file)["x"] for file in sorted(folder.glob("*.npz"))]
    assert all(array.shape == (1, 8) for array in held)
    if kind != "synthetic":
        assert sorted(array.tobytes() for array in held) == sorted(array.tobytes() for array in SAMPLES)

    # An engine's answers under the same names are judged against the right samples.
    Path(judged[3]).mkdir()
    weights = np.random.default_rng(9).standard_normal((8, 4)).astype(np.float32)
    for file in folder.glob("*.npz"):
        np.savez(Path(judged[3]) / file.name, y=np.load(file)["x"] @ weights)
    assert verify(judged[2], judged[3], judged[-1]).met


def test_without_a_script_no_samples_are_written(tmp_path: Path) -> None:
    result = fix(product(tmp_path), [{"x": x} for x in SAMPLES], out=tmp_path / "out")
    assert engine_loop(result) is None and not (tmp_path / "out" / "m.samples").exists()
