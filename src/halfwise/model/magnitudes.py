"""Between which magnitudes the elements of a weight lie."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from halfwise.core.counting import count
from halfwise.model.weight_counts import counts_of_weights
from halfwise.model.weights import stored_tensor

__all__ = ["Magnitudes", "magnitudes"]

_COUNTED = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}  # as they are stored


class Magnitudes(NamedTuple):
    """`least` leaves zeros out, and is infinite where nothing else is; `largest` is where anything is not finite."""

    least: float
    largest: float


def magnitudes(tensor: ir.TensorProtocol) -> Magnitudes:
    """Those of its values as FP32 holds them."""
    stored = stored_tensor(tensor)
    if stored.dtype in _COUNTED:
        (found,) = counts_of_weights([stored])
    else:
        with np.errstate(over="ignore"):  # of double precision
            found = count(np.asarray(stored.numpy()).astype(np.float32))
    return Magnitudes(found.min_abs or math.inf, math.inf if found.nonfinite else found.max_abs)
