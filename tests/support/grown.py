"""Models of `tests/data/exports`: graphs as exporters wrote them, with weights drawn anew."""

from __future__ import annotations

import json
import lzma
import zlib
from pathlib import Path

import numpy as np
import onnx

__all__ = ["EXPORTS", "grown"]

EXPORTS = Path(__file__).parent.parent / "data" / "exports"


def grown(skeleton: Path) -> onnx.ModelProto:
    """A skeleton (`tools/skeleton.py`) with a weight drawn for each that was left out."""
    model = onnx.ModelProto.FromString(lzma.decompress(skeleton.read_bytes()))
    (told,) = (entry.value for entry in model.metadata_props if entry.key == "left out")
    del model.metadata_props[:]
    left_out = json.loads(told)
    for tensor in model.graph.initializer:
        if tensor.name in left_out:
            spread = left_out[tensor.name]
            rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
            array = spread["mean"] + spread["deviation"] * rng.standard_normal(tuple(tensor.dims))
            for axis, index, factor in spread["far"]:
                array[(slice(None),) * axis + (index,)] *= factor
            tensor.raw_data = array.astype(np.float32).tobytes()
    return model
