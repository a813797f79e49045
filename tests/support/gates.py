"""A model that was fixed, and its plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from halfwise.verbs.gate import Gate

__all__ = ["changed", "scaled", "statuses"]


def changed(folder: Path, name: str, change: Callable[[onnx.ModelProto], None]) -> Path:
    model = onnx.load(folder / "model.onnx")
    change(model)
    onnx.save(model, folder / name)
    return folder / name


def scaled(factor: float, tensor: str = "") -> Callable[[onnx.ModelProto], None]:
    """Trained again: other values in all weights that are no scalars, or in one."""

    def change(model: onnx.ModelProto) -> None:
        for weight in model.graph.initializer:
            array = numpy_helper.to_array(weight)
            if weight.name == tensor or (not tensor and array.ndim and array.dtype == np.float32):
                weight.CopyFrom(numpy_helper.from_array((array * factor).astype(np.float32), weight.name))

    return change


def statuses(result: Gate) -> dict[str, str]:
    return {check.id: check.status for check in result.checks}
