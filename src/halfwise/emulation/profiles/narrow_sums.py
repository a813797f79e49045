"""Matrix products and convolutions whose partial sums are stored narrow, as tensor cores with FP16 accumulators do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.emulation.profiles.profile import Kernel
from halfwise.emulation.profiles.steps import Steps, attribute, cast

__all__ = ["MOST_PARTS", "NARROW_SUMS", "TERMS", "narrow_sums"]

TERMS = 16  # of one tensor-core instruction on FP16 (m16n8k16): summed wide, then added to a narrow sum
MOST_PARTS = 128  # partial sums of one result that are emulated; a longer sum takes more terms at a time

# Whether tensor cores can keep the sums of operands of a format in that format.
_SUMMED_NARROW = {Format.FP16: True, Format.BF16: False}

_SCAN = 9  # the first opset whose Scan takes axes
_INTEGER_MAX = 12  # the first opset whose Max takes integers

Indices = NDArray[np.int64]
# The tensors that say which terms make the first partial sum, and which each of those that follow; None: none follow.
Parts = tuple[str, "str | None"]


@dataclass(frozen=True)
class _Tile:
    """How many terms are added wide before the sum is stored, and how many such parts of one sum are emulated."""

    terms: int
    most: int

    def parts(self, length: int) -> tuple[Indices, Indices]:
        """The terms of the first partial sum, which is the shorter one, and of all that follow, one row each."""
        size = max(self.terms, math.ceil(length / self.most))
        later = (length - 1) // size
        first = length - later * size
        return np.arange(first), np.arange(first, length).reshape(later, size)


def _matmul(proto: onnx.NodeProto, steps: Steps, tile: _Tile) -> str | None:
    ranks = steps.rank(0), steps.rank(1)
    if ranks[0] is None or ranks[1] is None:
        return None
    axes = ranks[0] - 1, max(ranks[1] - 2, 0)
    return _product(proto, steps, tile, (proto.input[0], proto.input[1]), axes, axes)


def _gemm(proto: onnx.NodeProto, steps: Steps, tile: _Tile) -> str | None:
    """The factors and the bias come to the sum at its end."""
    turned = int(attribute(proto, "transA", 0)), int(attribute(proto, "transB", 0))
    names = [
        steps.op("Transpose", name, perm=[1, 0]) if turn else name
        for name, turn in zip(proto.input[:2], turned, strict=True)
    ]
    plain = onnx.NodeProto(op_type="MatMul", input=names, output=list(proto.output))
    stored = 0 if turned[0] else 1, 1 if turned[1] else 0
    total = _product(plain, steps, tile, (names[0], names[1]), (1, 0), stored)
    if total is None:
        return None
    alpha, beta = attribute(proto, "alpha", 1.0), attribute(proto, "beta", 1.0)
    if alpha != 1.0:
        total = steps.op("Mul", total, steps.constant(alpha))
    if len(proto.input) < 3 or not proto.input[2]:
        return total
    bias = proto.input[2] if beta == 1.0 else steps.op("Mul", proto.input[2], steps.constant(beta))
    return steps.op("Add", total, bias)


def _product(
    proto: onnx.NodeProto,
    steps: Steps,
    tile: _Tile,
    names: tuple[str, str],
    axes: tuple[int, int],
    stored: tuple[int, int],
) -> str | None:
    """`axes` are summed over; `stored` are the same of the operands as the model has them."""
    length = next((size for slot in (0, 1) if (size := _size(steps, slot, stored[slot])) is not None), None)
    if length == 0 or steps.opset < (_SCAN if length else _INTEGER_MAX):
        return None
    if length:
        parts = _known(tile.parts(length), steps)
    else:
        parts = _counted(names[0], axes[0], steps, tile)
        names = _with_zero(names[0], axes[0], steps), _with_zero(names[1], axes[1], steps)
    return _summed(proto, steps, names, axes, (parts, parts))


def _convolution(proto: onnx.NodeProto, steps: Steps, tile: _Tile) -> str | None:
    """Summed over a few channels at a time, and over their whole window."""
    weight = steps.dims(1)
    if weight is None or len(weight) < 3 or steps.opset < _SCAN:
        return None
    group = int(attribute(proto, "group", 1))
    turned = proto.op_type == "ConvTranspose"
    channels = weight[0] // group if turned else weight[1]
    window = math.prod(weight[2:])
    if turned:
        window = math.ceil(window / math.prod(attribute(proto, "strides", [1])))
    bias = proto.input[2] if len(proto.input) > 2 else ""
    bare = onnx.NodeProto()
    bare.CopyFrom(proto)
    del bare.input[2:]
    parts = _Tile(max(tile.terms // window, 1), tile.most).parts(channels)
    grouped = _known((_in_groups(parts[0], group, channels), _in_groups(parts[1], group, channels)), steps)
    read = grouped if turned else _known(parts, steps)
    total = _summed(bare, steps, (bare.input[0], bare.input[1]), (1, 0 if turned else 1), (grouped, read))
    return steps.op("Add", total, _along_channels(bias, len(weight), steps)) if bias else total


def _size(steps: Steps, slot: int, axis: int) -> int | None:
    """One dimension of an input, where the model states it."""
    value = steps.node.inputs[slot]
    size = None if value is None or value.shape is None else value.shape[axis]
    return size if isinstance(size, int) else None


def _along_channels(bias: str, rank: int, steps: Steps) -> str:
    return steps.op("Reshape", bias, steps.constant([1, -1, *[1] * (rank - 2)], np.int64))


def _known(parts: tuple[Indices, Indices], steps: Steps) -> Parts:
    first, later = parts
    return steps.constant(first, np.int64), steps.constant(later, np.int64) if len(later) else None


def _counted(operand: str, axis: int, steps: Steps, tile: _Tile) -> Parts:
    """The same where the length is known only when the model runs.

    A last part has only terms that are 0, from behind the end: a Scan over no parts ends ONNX Runtime's process.
    """

    def number(value: int) -> str:
        return steps.constant(value, np.int64)

    length = steps.op("Gather", steps.op("Shape", operand), number(axis))
    least = steps.op("Div", steps.op("Add", length, number(tile.most - 1)), number(tile.most))
    size = steps.op("Max", least, number(tile.terms))
    later = steps.op("Div", steps.op("Sub", length, number(1)), size)
    first = steps.op("Sub", length, steps.op("Mul", later, size))
    one = steps.constant([1], np.int64)
    width = steps.op("Reshape", size, one)
    shape = steps.op("Concat", steps.op("Reshape", steps.op("Add", later, number(1)), one), width, axis=0)
    beyond = steps.op("Expand", length, width)
    rest = steps.op("Concat", steps.op("Range", first, length, number(1)), beyond, axis=0)
    return steps.op("Range", number(0), first, number(1)), steps.op("Reshape", rest, shape)


def _with_zero(operand: str, axis: int, steps: Steps) -> str:
    """An operand with one more term, which is 0."""
    term = steps.op("Shape", steps.op("Gather", operand, steps.constant([0], np.int64), axis=axis))
    return steps.op("Concat", operand, steps.op("ConstantOfShape", term), axis=axis)


def _in_groups(channels: Indices, group: int, each: int) -> Indices:
    """The same channels of every group."""
    starts = np.arange(group) * each
    every = starts[:, None] + channels[..., None, :]
    return every.reshape(*channels.shape[:-1], group * channels.shape[-1])


def _summed(
    proto: onnx.NodeProto,
    steps: Steps,
    names: tuple[str, str],
    axes: tuple[int, int],
    parts: tuple[Parts, Parts],
) -> str:
    """Every partial sum stored: what the operator gives for some of the terms is added to what the others gave."""

    def picked(which: int, index: str) -> str:
        return steps.op("Gather", names[which], index, axis=axes[which])

    (first, later), (other_first, other_later) = parts
    start = onnx.NodeProto()
    start.CopyFrom(proto)
    del start.input[:]
    start.input.extend([picked(0, first), picked(1, other_first)])
    total = steps.round(steps.keep(start))
    if later is None or other_later is None:
        return total
    held, x, y, part, wide, narrow, result, last = (
        steps.names.value(f"{steps.base}__{what}")
        for what in ("held", "x", "y", "part", "wide", "narrow", "sum", "total")
    )
    inner = onnx.NodeProto()
    inner.CopyFrom(proto)
    del inner.input[:], inner.output[:]
    inner.input.extend([x, y])
    inner.output.append(part)
    body = helper.make_graph(
        [
            inner,
            helper.make_node("Add", [held, part], [wide]),
            cast(wide, narrow, steps.fmt.onnx_type),
            cast(narrow, result, onnx.TensorProto.FLOAT),
        ],
        "narrow_sum",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in (held, x, y)],
        [helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, None)],
    )
    steps.nodes.append(
        helper.make_node(
            "Scan", [total, picked(0, later), picked(1, other_later)], [last], body=body, num_scan_inputs=2,
            scan_input_axes=list(axes),
        )
    )  # fmt: skip
    return last


_Spelled = Callable[[onnx.NodeProto, Steps, _Tile], "str | None"]


def _in_fp16(kernel: _Spelled, tile: _Tile) -> Kernel:
    """Tensor cores know FP16 accumulators only: operands in BF16 are summed in FP32."""

    def spelled(proto: onnx.NodeProto, steps: Steps) -> str | None:
        if steps.fmt not in _SUMMED_NARROW:
            raise InputError(f"no kernel is known whose operands are {steps.fmt.value}; judge under the strict profile")
        return kernel(proto, steps, tile) if _SUMMED_NARROW[steps.fmt] else None

    return spelled


def narrow_sums(terms: int, most_parts: int = MOST_PARTS) -> Mapping[str, Kernel]:
    """The operators whose sums are stored after every so many terms, and no more than so many times."""
    spelled: Mapping[str, _Spelled] = {
        "Conv": _convolution,
        "ConvTranspose": _convolution,
        "Gemm": _gemm,
        "MatMul": _matmul,
    }
    return {op: _in_fp16(kernel, _Tile(terms, most_parts)) for op, kernel in spelled.items()}


NARROW_SUMS = narrow_sums(TERMS)
