"""A model without its weights, small enough to be a test's data: python -m tools.skeleton MODEL OUT.onnx.xz.

A large weight is left out; how it was spread is written down, and that a channel is far larger than the others.
`tests/support/grown.py` draws others like them.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

__all__ = ["main"]

_LARGE = 1 << 10  # elements
_FAR = 8.0  # times the median of all channels


def main(arguments: Sequence[str] | None = None) -> int:
    model, out = map(Path, arguments if arguments is not None else sys.argv[1:])
    out.write_bytes(lzma.compress(_skeleton(onnx.load(model)).SerializeToString(deterministic=True)))
    return 0


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    left_out = {}
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > _LARGE:
            left_out[tensor.name] = _spread(array)
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
    onnx.helper.set_model_props(model, {"left out": json.dumps(left_out)})
    return model


def _spread(array: NDArray[np.float32]) -> dict[str, Any]:
    """The deviation, and by axis and index how much larger a channel is."""
    far, usual = [], float(array.std())
    for axis in range(array.ndim):
        channels = array.std(axis=tuple(other for other in range(array.ndim) if other != axis))
        median = float(np.median(channels))
        usual = min(usual, median)
        far += [
            [axis, int(index), float(channels[index]) / median] for index in np.flatnonzero(channels > _FAR * median)
        ]
    return {"deviation": usual, "mean": float(np.median(array)), "far": far}


if __name__ == "__main__":
    sys.exit(main())
