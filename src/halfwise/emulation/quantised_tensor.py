"""A weight as the numbers that QuantizeLinear makes of it, made whenever they are read.

Exporters of models that were trained or calibrated with fake quantisation write a weight in FP32, QuantizeLinear and
DequantizeLinear. The runtime's own kernel takes ten times as long where the scales are along the last axis.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import in_blocks
from halfwise.core.formats import Format
from halfwise.emulation.unpacked_tensor import FP8, LARGE_BYTES, numbers_of
from halfwise.model.weights import convert_array, stored_tensor
from halfwise.precision.rewrite import Weight

__all__ = ["QuantisedTensor", "quantised_weight"]

Array = NDArray[Any]

_AT_ONCE = 1 << 17  # numbers that are made together: they stay in the processor's cache
_TYPES = (ir.DataType.INT8, ir.DataType.UINT8, *FP8)
_STATED = {"axis", "output_dtype", "saturate"}


class QuantisedTensor(ir.LazyTensor):
    """`v / s + z` to nearest, within the type's range, of a weight in a format; `recipe` says how it is made of its
    `source`. Scales and zero points go by its first axis or its last, or are one for all.
    """

    def __init__(self, weight: Weight, scales: Array, zeros: Array, dtype: ir.DataType) -> None:
        source, fmt = stored_tensor(weight.tensor), weight.fmt or Format.FP32

        def whole() -> ir.TensorProtocol:
            shape = source.shape.numpy()
            rows = shape[0] if len(scales) > 1 else math.prod(shape[:-1])
            given = np.asarray(source.numpy()).reshape(rows, -1)
            made = np.empty(given.shape, dtype.numpy())

            def make(start: int, stop: int) -> None:
                factors, middles = (each[start:stop] if len(each) > 1 else each for each in (scales, zeros))
                wide = convert_array(given[start:stop], fmt)[0].astype(np.float32)
                _quantise(wide, factors, middles, made[start:stop])

            in_blocks(make, rows, max(1, _AT_ONCE // given.shape[1]))
            return ir.tensor(made.reshape(shape), dtype=dtype)

        super().__init__(whole, dtype, ir.Shape(source.shape.numpy()), cache=False)
        known = hashlib.sha256(f"{dtype} {fmt}".encode())
        for each in (scales, zeros):
            known.update(f"{each.shape}".encode() + each.tobytes())
        self.source, self.recipe = source, known.digest()


_MADE: WeakKeyDictionary[ir.TensorProtocol, WeakValueDictionary[bytes, QuantisedTensor]] = WeakKeyDictionary()


def quantised_weight(node: onnx.NodeProto, weights: Mapping[str, Weight]) -> QuantisedTensor | None:
    """What a QuantizeLinear makes of a large weight, the same object for the same weight; None of others."""
    if node.op_type != "QuantizeLinear" or node.domain not in ("", "com.microsoft"):
        return None
    name, of_scales, of_zeros = (node.input[slot] if slot < len(node.input) else "" for slot in range(3))
    stated = {attribute.name: attribute.i for attribute in node.attribute}
    unknown = stated.keys() - _STATED or not stated.get("saturate", 1)
    if unknown or any(each not in weights for each in (name, of_scales, of_zeros) if each):
        return None
    weight, scales, zeros = weights[name], weights[of_scales], weights.get(of_zeros)
    dtype = ir.DataType(stated.get("output_dtype") or ir.DataType.UINT8) if zeros is None else zeros.tensor.dtype
    shape, count = weight.tensor.shape.numpy(), scales.tensor.size
    axis = stated.get("axis", 1) % max(len(shape), 1)
    if len(shape) < 2 or 4 * weight.tensor.size < LARGE_BYTES or dtype not in _TYPES:
        return None
    if count > 1 and (axis not in (0, len(shape) - 1) or count != shape[axis]):
        return None
    if zeros is not None and zeros.tensor.size != count:
        return None
    places = (1, 1) if count == 1 else (1, count) if axis else (count, 1)
    middles = np.zeros((1, 1), np.float32) if zeros is None else numbers_of(zeros).reshape(places)
    made = QuantisedTensor(weight, numbers_of(scales).reshape(places), middles, dtype)
    return _MADE.setdefault(made.source, WeakValueDictionary()).setdefault(made.recipe, made)


def _quantise(wide: Array, scales: Array, zeros: Array, into: Array) -> None:
    """`wide` is written over."""
    with np.errstate(invalid="ignore"):  # not a number stays so, or is whatever the type has instead
        np.divide(wide, scales, out=wide)
        if into.dtype.kind in "iu":
            least, most = float(np.iinfo(into.dtype).min), float(np.iinfo(into.dtype).max)
            np.rint(wide, out=wide)
            wide += zeros
        else:
            most = float(ml_dtypes.finfo(into.dtype).max)  # type: ignore[no-untyped-call]
            least = -most
        np.clip(wide, least, most, out=wide)
        into[...] = wide.astype(into.dtype)
