"""Between which magnitudes the elements of a weight lie: read once, and kept with the file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import in_blocks
from halfwise.model.weight_facts import fact_of_weight
from halfwise.model.weights import stored_tensor

__all__ = ["Magnitudes", "magnitudes"]

_BLOCK = 1 << 19  # elements that one thread takes at a time: of fewer, threads wait for each other
_CACHED = 1 << 16  # of these, so many lie in a processor's cache together with what is made of them
_INFINITE = 2 * 0x7F800000
_NONE = 2**32 - 1  # what doubled bits of zero, less 1, are


class Magnitudes(NamedTuple):
    """`least` leaves zeros out, and is infinite where nothing else is; `largest` is where anything is not finite."""

    least: float
    largest: float


def magnitudes(tensor: ir.TensorProtocol) -> Magnitudes:
    """Those of its values as FP32 holds them."""
    stored = stored_tensor(tensor)
    return Magnitudes(*fact_of_weight(stored, "magnitudes", lambda: _seen(np.asarray(stored.numpy()).reshape(-1))))


def _seen(flat: NDArray[Any]) -> tuple[float, float]:
    found = in_blocks(lambda start, stop: _of_block(flat[start:stop]), flat.size, _BLOCK)
    least = min((each for each, _ in found), default=_NONE)
    most = max((each for _, each in found), default=0)
    return _value(least + 1), _value(most) if most < _INFINITE else np.inf


def _of_block(piece: NDArray[Any]) -> tuple[int, int]:
    """Doubled bits, whose sign falls out, keep the order of magnitudes: the least less 1, where zeros are last of all,
    and the most."""
    with np.errstate(over="ignore"):  # of double precision
        bits = np.ascontiguousarray(piece, np.float32).view(np.uint32)
    double, least, most = np.empty(_CACHED, np.uint32), _NONE, 0
    for start in range(0, bits.size, _CACHED):
        part = bits[start : start + _CACHED]
        doubled = np.add(part, part, out=double[: part.size])
        most = max(most, int(doubled.max()))
        least = min(least, int(np.subtract(doubled, np.uint32(1), out=doubled).min()))
    return least, most


def _value(doubled: int) -> float:
    return float(np.uint32(doubled >> 1).view(np.float32)) if doubled < _INFINITE else np.inf
