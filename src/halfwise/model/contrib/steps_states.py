"""What onnxruntime-genai writes beside attention: tables of packed words, and convolutions with a state."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.contrib.steps_norms import Inputs, Results
from halfwise.model.contrib.steps_products import unpacked
from halfwise.model.contrib.writer import StepWriter, cut, dims_of, joined, stored, whole

__all__ = ["STATES"]

_INTEGERS = frozenset({ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4})
_EXTENDED = ("channels_last", "state_window", "state_update_capacity", "state_length", "input_channels")


def _words(write: StepWriter, inputs: Inputs) -> Results | None:
    table = _table(write.node)
    axis = whole(write.node, "gather_axis")
    return None if table is None else {0: write.op("Gather", write.constant(table), inputs[1], axis=axis)}


def _table(node: ir.Node) -> NDArray[np.float32] | None:
    """The numbers that are chosen from; None where they are no constant, or lie in another order."""
    packed, scales, zeros = _packed(node), stored(node, 2), stored(node, 3)
    kind, dims = node.inputs[0].dtype if node.inputs[0] is not None else None, dims_of(node, 0) or ()
    lacks_zeros = zeros is None and len(node.inputs) > 3 and node.inputs[3] is not None
    if packed is None or scales is None or scales.ndim != packed.ndim or lacks_zeros or kind not in _INTEGERS:
        return None
    if whole(node, "quantize_axis", 1) % len(dims) != len(dims) - 1:
        return None
    bits, block = whole(node, "bits", 4), whole(node, "block_size", 128)
    bytewise = kind == ir.DataType.UINT8
    values = _numbers(packed, bits, bytewise)
    zero: Any = 1 << (bits - 1) if bytewise else 0
    if zeros is not None:
        zero = _stretched(_numbers(zeros, bits, bytewise)[..., : scales.shape[-1]], block, values.shape[-1])
    scale = _stretched(scales.astype(np.float32), block, values.shape[-1])
    return np.asarray((values - zero) * scale, dtype=np.float32) if scale.shape == values.shape else None


def _packed(node: ir.Node) -> NDArray[Any] | None:
    """The stored table, which may have another shape where it is stored: as the weight of the last product, say."""
    value = node.inputs[0]
    maker = value.producer() if value is not None else None
    if maker is None or maker.op_type != "Reshape":
        return stored(node, 0)
    held, dims = stored(maker, 0), dims_of(node, 0)
    whole_shape = [size for size in dims or () if size is not None]
    return held.reshape(whole_shape) if held is not None and int(np.prod(whole_shape)) == held.size else None


def _numbers(packed: NDArray[Any], bits: int, bytewise: bool) -> NDArray[np.float32]:
    if not bytewise or bits == 8:
        return packed.astype(np.float32)
    count = packed.shape[-1] * 8 // bits
    return unpacked(packed.reshape(-1, packed.shape[-1]), bits, count).reshape(*packed.shape[:-1], count)


def _stretched(each: NDArray[np.float32], block: int, width: int) -> NDArray[np.float32]:
    """One number for each of a block."""
    return np.repeat(each, block, axis=-1)[..., :width]


def _causal(write: StepWriter, inputs: Inputs) -> Results | None:
    node = write.node
    weight, bend = dims_of(node, 1), node.attributes.get_string("activation", "none")
    if weight is None or len(weight) != 3 or weight[0] is None or weight[2] is None or bend not in _BENT:
        return None
    if whole(node, "ndim", 1) != 1 or any(whole(node, name) for name in _EXTENDED) or weight[2] < 2:
        return None
    apart = whole(node, "dilation", 1)
    kept = (weight[2] - 1) * apart
    x, kernel, bias, past = (*inputs, *[""] * (4 - len(inputs)))
    if past:
        x = joined(write, past, x, axis=2)
    else:
        x = write.op("Pad", x, write.constant([0, 0, kept, 0, 0, 0], np.int64))
    y = write.op("Conv", *(name for name in (x, kernel, bias) if name), group=weight[0], dilations=[apart])
    if bend != "none":
        y = write.store(y)
        y = write.op("Mul", y, write.store(write.op("Sigmoid", y)))
    return {0: y, 1: cut(write, x, 2, -kept, sys.maxsize)}


_BENT = ("none", "silu", "swish")
STATES = {"CausalConvWithState": _causal, "GatherBlockQuantized": _words}
