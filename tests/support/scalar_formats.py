"""FP16 and BF16 from their definition, one number at a time in integers: what the emulation is compared with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.formats import Format

# Bits of the fraction, and the exponent of the largest power of two.
_LAYOUT = {Format.FP16: (10, 15), Format.BF16: (7, 127)}


def round_scalar(bits: int, fmt: Format) -> float:
    """The FP32 number with these bits, rounded to nearest, ties to even."""
    fraction_bits, largest = _LAYOUT[fmt]
    sign, exponent, fraction = -1.0 if bits >> 31 else 1.0, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        return math.nan if fraction else sign * math.inf
    # The magnitude is whole * 2**power.
    whole, power = (fraction | 1 << 23, exponent - 150) if exponent else (fraction, -149)
    if whole == 0:
        return sign * 0.0
    smallest = 1 - largest - fraction_bits  # the exponent of the smallest subnormal
    step = max(whole.bit_length() - 1 + power - fraction_bits, smallest)
    drop = step - power
    if drop <= 0:
        kept = whole << -drop
    else:
        kept, rest, half = whole >> drop, whole & (1 << drop) - 1, 1 << drop - 1
        if rest > half or (rest == half and kept & 1):
            kept += 1
    if kept.bit_length() + step > largest + 1:
        return sign * math.inf
    return sign * math.ldexp(kept, step)


def round_array(array: NDArray[Any], fmt: Format) -> NDArray[np.float32]:
    """The same for every number of an array; FP32 stays."""
    wide = np.ascontiguousarray(array, dtype=np.float32)
    if fmt is Format.FP32:
        return wide
    rounded = [round_scalar(int(bits), fmt) for bits in wide.reshape(-1).view(np.uint32)]
    return np.array(rounded, dtype=np.float32).reshape(wide.shape)
