"""INT4 and UINT4, which ONNX Runtime holds two to a byte: it takes none from NumPy and hands it none."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.put_off import Later
from halfwise.model.weights import whole_tensor
from halfwise.precision.rewrite import Weight

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = Later("onnxruntime")

__all__ = ["FOUR_BITS", "array_of", "has_four_bits", "value_of", "with_four_bits"]

FOUR_BITS = {"tensor(int4)": onnx.TensorProto.INT4, "tensor(uint4)": onnx.TensorProto.UINT4}


def has_four_bits(weight: Weight) -> bool:
    return weight.fmt is None and weight.tensor.dtype in (ir.DataType.INT4, ir.DataType.UINT4)


def with_four_bits(proto: onnx.ModelProto, weights: Sequence[Weight]) -> tuple[onnx.ModelProto, tuple[Weight, ...]]:
    """The model with the contents of such weights, and the others."""
    within = {weight.name: weight for weight in weights if has_four_bits(weight)}
    if not within:
        return proto, tuple(weights)
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for tensor in made.graph.initializer:
        if tensor.name in within:
            tensor.CopyFrom(whole_tensor(tensor.name, within[tensor.name].tensor))
    return made, tuple(weight for weight in weights if weight.name not in within)


def value_of(array: NDArray[Any], onnx_type: int) -> ort.OrtValue:
    """The runtime's own value; it reads the first half of the memory that it is given."""
    bits = array.reshape(-1).astype(np.int8).view(np.uint8) & 15
    held = np.zeros(array.shape, np.uint8)
    packed = held.reshape(-1)
    packed[: (bits.size + 1) // 2] = bits[::2]
    packed[: bits.size // 2] |= bits[1::2] << 4
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(held, onnx_type)


def array_of(value: ort.OrtValue) -> Any:
    """What a value of any type holds."""
    onnx_type = FOUR_BITS.get(value.data_type())
    if onnx_type is None:
        return value.numpy()
    shape = tuple(value.shape())
    count = math.prod(shape)
    packed = np.frombuffer(ctypes.string_at(value.data_ptr(), (count + 1) // 2) if count else b"", np.uint8)
    bits = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)[:count].astype(np.int8)
    signed = (bits ^ 8) - 8 if onnx_type == onnx.TensorProto.INT4 else bits
    return signed.astype(onnx.helper.tensor_dtype_to_np_dtype(onnx_type)).reshape(shape)
