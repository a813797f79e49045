"""The floating-point formats, one record each: their bits and limits, and rounding to them.

A format that is not among FORMATS is added there and nowhere else: everything that depends on one reads its record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray

__all__ = ["FORMATS", "Format", "cast_to", "format_named", "format_of_dtype", "format_of_type", "round_to", "spacing"]

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Format:
    """A storage format of a tensor. A format is only equal to itself.

    `value` is its short name in plans and on the command line. `max` is the largest finite value; what lies beyond it
    becomes that value where the format is `saturating`, else infinity.
    """

    value: str
    onnx_type: int
    dtype: np.dtype[Any]
    exponent_bits: int
    mantissa_bits: int  # as stored, without the leading one
    max: float
    saturating: bool = False

    FP16: ClassVar[Format]
    BF16: ClassVar[Format]
    FP32: ClassVar[Format]

    @cached_property
    def smallest_normal(self) -> float:
        return math.ldexp(1.0, 2 - 2 ** (self.exponent_bits - 1))

    @cached_property
    def smallest_subnormal(self) -> float:
        return self.smallest_normal * 2.0**-self.mantissa_bits

    @cached_property
    def unit_roundoff(self) -> float:
        """Half the distance from 1 to the next larger value."""
        return 2.0 ** -(self.mantissa_bits + 1)

    @property
    def narrow(self) -> bool:
        return self is not Format.FP32

    @cached_property
    def schema_type(self) -> str:
        """How the schemas of ONNX operators name a tensor of it."""
        return f"tensor({onnx.TensorProto.DataType.Name(self.onnx_type).lower()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return format_named, (self.value,)  # a copy is the format itself


Format.FP16 = Format("fp16", onnx.TensorProto.FLOAT16, np.dtype(np.float16), 5, 10, (2 - 2.0**-10) * 2.0**15)
Format.BF16 = Format("bf16", onnx.TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16), 8, 7, (2 - 2.0**-7) * 2.0**127)
Format.FP32 = Format("fp32", onnx.TensorProto.FLOAT, np.dtype(np.float32), 8, 23, (2 - 2.0**-23) * 2.0**127)

FORMATS: dict[str, Format] = {fmt.value: fmt for fmt in (Format.FP16, Format.BF16, Format.FP32)}

_FEW = 256  # values up to which NumPy's own conversion is as fast
_BLOCK = 1 << 15  # values that are rounded at a time, few enough for the processor's cache
_EXPONENT = 0xFF << 23  # FP32's, as it lies in the bits


def format_named(value: object) -> Format | None:
    """The format of this short name; None where there is none."""
    return FORMATS.get(value) if isinstance(value, str) else None


def format_of_type(onnx_type: int | None) -> Format | None:
    """The format of ONNX's number for a type; None for what is no known floating-point format."""
    for fmt in FORMATS.values():
        if fmt.onnx_type == onnx_type:
            return fmt
    return None


def format_of_dtype(dtype: np.dtype[Any]) -> Format | None:
    """The same of an array's type."""
    for fmt in FORMATS.values():
        if fmt.dtype == dtype:
            return fmt
    return None


def cast_to(array: NDArray[Any], fmt: Format) -> NDArray[Any]:
    """The array in the type of `fmt`: to nearest, ties to even."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (np.clip(array, -fmt.max, fmt.max) if fmt.saturating else array).astype(fmt.dtype)


def spacing(fmt: Format, magnitude: float) -> float:
    """How far apart the format's numbers lie at a magnitude."""
    return max(2.0 * fmt.unit_roundoff * 2.0 ** math.floor(math.log2(magnitude)), fmt.smallest_subnormal)


def round_to(array: NDArray[Any], fmt: Format) -> FloatArray:
    """Round to the nearest value of `fmt`, ties to even; the result is held in FP32."""
    wide = np.asarray(array, dtype=np.float32)
    if not fmt.narrow:
        return wide
    if wide.size > _FEW and fmt.exponent_bits < Format.FP32.exponent_bits:
        return _round_by_additions(wide, fmt)
    return cast_to(wide, fmt).astype(np.float32)


def _round_by_additions(wide: FloatArray, fmt: Format) -> FloatArray:
    """Rounding by FP32 additions alone; NumPy's conversion takes 70 ns for each subnormal result of FP16.

    With m bits of mantissa, 1.5 * 2^(e+23-m) has a last place of 2^(e-m), the spacing of `fmt` at 2^e: adding it
    rounds, taking it away is exact.
    """
    shift = (Format.FP32.mantissa_bits - fmt.mantissa_bits) << 23
    # All subnormals are spaced alike, and what is larger than the largest overflows.
    least, most = (127 + math.frexp(fmt.smallest_normal)[1] - 1) << 23, (127 + math.frexp(fmt.max)[1]) << 23
    beyond = fmt.max if fmt.saturating else np.inf
    rounded = np.empty_like(wide, order="C")
    source, target = wide.reshape(-1), rounded.reshape(-1)
    room = np.empty(min(source.size, _BLOCK), np.float32)
    with np.errstate(invalid="ignore"):
        for start in range(0, source.size, _BLOCK):
            values, kept = source[start : start + _BLOCK], target[start : start + _BLOCK]
            large = room[: values.size]
            bits = large.view(np.uint32)
            np.bitwise_and(values.view(np.uint32), _EXPONENT, out=bits)
            np.minimum(np.maximum(bits, least, out=bits), most, out=bits)
            np.add(bits, shift, out=bits)
            np.multiply(large, 1.5, out=large)
            np.add(values, large, out=kept)
            np.subtract(kept, large, out=kept)
            np.copysign(kept, values, out=kept)
            over = np.greater(np.abs(kept, out=large), fmt.max)
            if over.any():
                kept[over] = np.copysign(beyond, kept[over])
    return rounded
