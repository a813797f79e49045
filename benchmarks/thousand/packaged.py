"""Real models that ordinary packages ship, wherever they lie among what is installed, and those beside the project."""

from __future__ import annotations

import site
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from benchmarks.cases import models_folder
from benchmarks.thousand.graph import Graph, Made

__all__ = ["graphs"]

LARGEST = 100 << 20  # bytes


def graphs() -> Iterator[Graph]:
    for path in sorted(models_folder().glob("*/model.onnx")):
        yield Graph(f"real-{path.parent.name}", "real", partial(_with_inputs, path))
    for folder in map(Path, site.getsitepackages()):
        for path in sorted(folder.rglob("*.onnx")):
            tests = {"test", "tests", "onnx"} & set(path.relative_to(folder).parts)
            if not tests and path.stat().st_size <= LARGEST:
                name = "-".join(path.relative_to(folder).with_suffix("").parts)
                yield Graph(f"package-{name}", "real", partial(_alone, path))


def _with_inputs(path: Path) -> Made:
    feeds = []
    for file in sorted(path.parent.glob("inputs_*.npz"))[:6]:
        with np.load(file, allow_pickle=False) as arrays:
            feeds.append({name: arrays[name] for name in arrays.files})
    return Made(onnx.load(path), feeds)


def _alone(path: Path) -> Made:
    return Made(onnx.load(path), [])
