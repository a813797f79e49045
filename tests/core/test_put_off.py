"""How libraries behave in a process that is ours alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models.build import model, node, value, weight

BEGINS = "from halfwise.core.put_off import tell_libraries; tell_libraries(); "
LOADS = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1])"


def deprecated() -> onnx.ModelProto:
    """ONNX Runtime warns of this form each time that it is loaded."""
    options = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    return model(
        [node("Resize", "x - scales", "y", mode="nearest", **options)],
        [value("x", shape=(1, 1, 4, 4))],
        [value("y", shape=(1, 1, 8, 8))],
        [weight("scales", np.array([1, 1, 2, 2], np.float32))],
        opset=13,
    )


@pytest.mark.parametrize(("begins", "warns"), [("", True), (BEGINS, False)], ids=["by itself", "in a process of ours"])
def test_onnx_runtime_writes_no_warnings_between_our_lines(begins: str, warns: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(deprecated(), path)
    done = subprocess.run([sys.executable, "-c", begins + LOADS, str(path)], capture_output=True, text=True, check=True)
    assert ("deprecated" in done.stderr) is warns
