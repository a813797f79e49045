"""What a backend is handed stays as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from halfwise.backends import BackendOptions
from halfwise.backends.runtime_session import run_model
from tests.models.build import model, node, value


def test_the_runtime_does_not_write_over_the_samples(tmp_path: Path) -> None:
    """Where it drops the Casts around a training BatchNormalization, its statistics are updated in the input."""
    names = ("x", "scale", "bias", "mean", "var")
    casts = [node("Cast", name, f"{name}h", to=TensorProto.FLOAT16) for name in names]
    reads = " ".join(f"{name}h" for name in names)
    work = node("BatchNormalization", reads, "yh meanh2 varh2", training_mode=1)
    back = [node("Cast", f"{name}", wide, to=TensorProto.FLOAT) for name, wide in (("yh", "y"), ("meanh2", "after"))]
    inputs = [value("x", shape=[2, 3, 4]), *(value(name, shape=[3]) for name in names[1:])]
    proto = model([*casts, work, *back], inputs, [value("y", shape=[2, 3, 4]), value("after", shape=[3])])
    onnx.save(proto, tmp_path / "m.onnx")
    feed = {name: np.ones(3, np.float32) for name in names[1:]}
    feed["x"] = np.linspace(-3, 5, 24, dtype=np.float32).reshape(2, 3, 4)
    before = {name: array.copy() for name, array in feed.items()}
    first, again = (run_model("ort-cpu", tmp_path / "m.onnx", [feed], BackendOptions()).outputs[0] for _ in "ab")
    assert all(np.array_equal(feed[name], before[name]) for name in feed)
    assert np.array_equal(first["after"], again["after"])
