"""Runs a session of ONNX Runtime whose inputs or outputs are BF16: it takes none from NumPy and hands it none."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["run_session"]

_BF16, _ONNX_TYPE = "tensor(bfloat16)", 16


def run_session(session: Any, names: Sequence[str], given: Mapping[str, Any]) -> list[Any]:
    """The outputs of these names; what is BF16 comes and goes as FP32, or as NumPy's extension type for it."""
    kinds = {value.name: value.type for value in session.get_inputs()}
    if _BF16 not in (*kinds.values(), *(value.type for value in session.get_outputs())):
        return list(session.run(names, given))
    held = {name: _value(array, kinds[name]) for name, array in given.items()}
    return [_array(value) for value in session.run_with_ort_values(names, held)]


def _value(array: Any, kind: str) -> Any:
    import ml_dtypes
    import onnxruntime as ort

    if kind != _BF16:
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = np.ascontiguousarray(np.asarray(array).astype(ml_dtypes.bfloat16)).view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _ONNX_TYPE)


def _array(value: Any) -> Any:
    import ml_dtypes

    if value.data_type() != _BF16:
        return value.numpy()
    shape = tuple(value.shape())
    bits = ctypes.string_at(value.data_ptr(), 2 * math.prod(shape)) if math.prod(shape) else b""
    return np.frombuffer(bits, ml_dtypes.bfloat16).reshape(shape).astype(np.float32)
