"""Bilinear resizing as CUDA's kernel does it: narrow weights, products and sums in one step, columns first."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray

from halfwise.emulation.profiles.steps import Steps, attribute

__all__ = ["resize_linear"]

Array = NDArray[np.float32]


def resize_linear(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """For pictures of known size; None for every other resizing."""
    before, after = steps.dims(0), steps.result_dims()
    if attribute(proto, "mode", b"nearest") != b"linear" or attribute(proto, "antialias", 0):
        return None
    if before is None or after is None or len(before) != 4 or before[:2] != after[:2] or before == after:
        return None
    if (
        attribute(proto, "axes", None) is not None
        or attribute(proto, "keep_aspect_ratio_policy", b"stretch") != b"stretch"
    ):
        return None
    first = steps.opset < 11  # it knew one way, and no region
    mode = "asymmetric" if first else attribute(proto, "coordinate_transformation_mode", b"half_pixel").decode()
    scales = steps.known(1 if first else 2)
    given = None if scales is None or len(scales) != 4 else scales
    rows, columns = (
        _places(before[axis], after[axis], mode, None if given is None else float(given[axis])) for axis in (2, 3)
    )
    if rows is None or columns is None:
        return None
    total = ""
    for row, column in ((1, 0), (0, 0), (0, 1), (1, 1)):
        share = steps.rounded(rows[2 + row][:, None] * columns[2 + column][None, :])
        picked = steps.op("Gather", proto.input[0], steps.constant(rows[row], np.int64), axis=2)
        picked = steps.op("Gather", picked, steps.constant(columns[column], np.int64), axis=3)
        product = steps.op("Mul", picked, steps.constant(share))
        total = product if not total else steps.op("Add", steps.round(total), product)
    return total


def _places(size: int, made: int, mode: str, scale: float | None) -> tuple[Array, Array, Array, Array] | None:
    """For every place made: its two neighbours, and the weight of each."""
    place = np.arange(made, dtype=np.float32)
    one, half = np.float32(1), np.float32(0.5)
    factor = np.float32(made) / np.float32(size) if scale is None else np.float32(scale)
    if mode == "align_corners":
        source = place * np.float32(size - 1) / np.float32(made - 1) if made > 1 else place * 0
    elif mode == "asymmetric":
        source = place / factor
    elif mode == "half_pixel" or (mode == "pytorch_half_pixel" and made > 1):
        source = (place + half) / factor - half
    elif mode == "pytorch_half_pixel":
        source = place * 0
    else:
        return None
    source = np.clip(source, 0, np.float32(size - 1)).astype(np.float32)
    low = np.minimum(np.floor(source), size - 1)
    high = np.minimum(low + 1, size - 1)
    share = (source - low).astype(np.float32)
    return low, high, (one - share).astype(np.float32), share
