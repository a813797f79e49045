"""Generated models for the benchmarks of a fleet: transformers of 74 to 1,477 nodes, each with weights of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.models.zoo import transformer

__all__ = ["write_fleet"]

_LEAST, _MOST = 1, 24  # layers
_SAMPLES = 4


def write_fleet(folder: Path, count: int, most: int = _MOST, settings: str = "", seed: int = 0) -> Path:
    """The fleet's file. Sizes lie evenly on a logarithmic axis; `settings` are lines of its table [fleet]; another
    `seed` draws other weights."""
    lines = ["[fleet]", settings, "[defaults]", 'do = ["fix"]', 'inputs = "{name}-inputs"']
    for index in range(count):
        layers = round(float(np.geomspace(_LEAST, most, count)[index]))
        built = transformer(layers, seed=seed + index)
        name = f"model-{index:03d}"
        onnx.save(built.model, folder / f"{name}.onnx")
        inputs = folder / f"{name}-inputs"
        inputs.mkdir()
        for number, feed in enumerate(built.inputs[:_SAMPLES]):
            np.savez(inputs / f"{number}.npz", **dict[str, Any](feed))
        lines += ["[[models]]", f'path = "{name}.onnx"']
    file = folder / "fleet.toml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
