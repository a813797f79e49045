"""What tests share: the folder of real models, where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The folder of trained models beside the project; each has `model.onnx` and `inputs_*.npz`."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "models"
    if not folder.is_dir():
        pytest.skip("the folder of real models (../shared/models) is not there")
    return folder
