"""The narrow formats from their definition, one number at a time in integers: what the emulation is compared with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.formats import Format

# Bits of the fraction, the exponent's bias, the largest value, and what lies beyond it.
_LAYOUT = {
    "fp16": (10, 15, 65504.0, math.inf),
    "bf16": (7, 127, 255 * 2.0**120, math.inf),
    "fp8-e4m3": (3, 7, 448.0, 448.0),
}


def round_scalar(bits: int, fmt: Format) -> float:
    """The FP32 number with these bits, rounded to nearest, ties to even."""
    fraction_bits, bias, largest, beyond = _LAYOUT[fmt.value]
    sign, exponent, fraction = -1.0 if bits >> 31 else 1.0, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        return math.nan if fraction else sign * beyond
    # The magnitude is whole * 2**power.
    whole, power = (fraction | 1 << 23, exponent - 150) if exponent else (fraction, -149)
    if whole == 0:
        return sign * 0.0
    smallest = 1 - bias - fraction_bits  # the exponent of the smallest subnormal
    step = max(whole.bit_length() - 1 + power - fraction_bits, smallest)
    drop = step - power
    if drop <= 0:
        kept = whole << -drop
    else:
        kept, rest, half = whole >> drop, whole & (1 << drop) - 1, 1 << drop - 1
        if rest > half or (rest == half and kept & 1):
            kept += 1
    found = math.ldexp(kept, step) if kept.bit_length() + step <= 129 else math.inf
    return sign * (found if found <= largest else beyond)


def round_array(array: NDArray[Any], fmt: Format) -> NDArray[np.float32]:
    """The same for every number of an array; FP32 stays."""
    wide = np.ascontiguousarray(array, dtype=np.float32)
    if fmt is Format.FP32:
        return wide
    rounded = [round_scalar(int(bits), fmt) for bits in wide.reshape(-1).view(np.uint32)]
    return np.array(rounded, dtype=np.float32).reshape(wide.shape)
