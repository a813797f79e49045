"""Brings a weight into a format, the way TensorRT converts: to nearest, finite overflow clamped to the largest value."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.formats import Format

__all__ = ["ONNX_TYPE", "convert_weight", "to_tensor_proto"]

ONNX_TYPE = {
    Format.FP16: onnx.TensorProto.FLOAT16,
    Format.BF16: onnx.TensorProto.BFLOAT16,
    Format.FP32: onnx.TensorProto.FLOAT,
}


def convert_weight(tensor: ir.TensorProtocol, fmt: Format) -> NDArray[Any]:
    """The weight in `fmt`: round to nearest even; finite values beyond the range become the largest finite value."""
    array = np.asarray(tensor.numpy())
    if array.dtype == fmt.dtype:
        return array
    wide = np.asarray(array, dtype=np.float32)
    if fmt is Format.FP32:
        return wide
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = wide.astype(fmt.dtype)
        lost = np.isinf(narrow) & np.isfinite(wide)
        if lost.any():
            narrow = np.where(lost, np.copysign(np.asarray(fmt.max, dtype=np.float32), wide).astype(fmt.dtype), narrow)
    return narrow


def to_tensor_proto(name: str, array: NDArray[Any], fmt: Format) -> onnx.TensorProto:
    """A whole initializer."""
    proto = onnx.TensorProto(name=name, data_type=ONNX_TYPE[fmt], dims=array.shape)
    proto.raw_data = np.ascontiguousarray(array).tobytes()
    return proto
