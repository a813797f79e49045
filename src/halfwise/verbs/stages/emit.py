"""Writes stages as models of their own, with the FP32 inputs that reach them, and plans beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.whole_files import WholeFiles, write_text
from halfwise.model.inputs.save import save_samples
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import Plan
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.verbs.stages.parts import Part

__all__ = ["StageFolder"]

_LONGEST = 80


class StageFolder:
    """The folder that stages are written into: `01-NAME.onnx`, and `01-NAME.inputs/` with one `.npz` a sample."""

    def __init__(self, path: Path, model: Model) -> None:
        self.path = path
        self._stem = model.path.stem if model.path else "model"
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path} cannot be made: {error.strerror}; choose another folder with --out") from None

    def write_stage(self, index: int, part: Part, samples: Sequence[Mapping[str, NDArray[Any]]]) -> Path:
        stem = f"{index + 1:02d}-{_file_name(part.name)}"
        path = self.path / f"{stem}.onnx"
        inputs = self.path / f"{stem}.inputs"
        with WholeFiles() as files:
            write_typed(Assignment(Sites(part.model), {}), path, files)
            save_samples(files, inputs, [{name: values[name] for name in part.inputs} for values in samples])
        return path

    def write_plan(self, plan: Plan, stage: str) -> Path:
        path = self.path / f"{self._stem}.upto-{_file_name(stage)}.plan.json"
        write_text(path, plan.text(path.parent))
        return path


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("_.")[:_LONGEST] or "stage"
