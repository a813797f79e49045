"""Packed weights of ONNX Runtime's products as FP32 ones, made whenever they are read.

The runtime's own kernel, given a weight that it may not order for itself, makes all of it anew for every input.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.formats import Format
from halfwise.emulation.given_weights import declared_weight
from halfwise.emulation.segments import reads_of
from halfwise.model.contrib.schemas import DOMAIN
from halfwise.model.weights import DerivedTensor, Making, Part, convert_weight, stored_tensor
from halfwise.precision.rewrite import Weight

__all__ = ["UnpackedTensor", "dequantised_weight", "has_packed", "plain_product", "unpacked_weight", "with_unpacked"]

Array = NDArray[Any]

LARGE_BYTES = 1 << 20  # of a weight in FP32
_AT_ONCE = 1 << 17  # numbers that are made together: they stay in the processor's cache
_QUANTISED = (ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT8, ir.DataType.UINT8)
_TOGETHER = {2: np.complex128, 4: np.complex64, 8: np.float32}  # what holds all the numbers of a byte in FP32


@dataclass(frozen=True)
class _Layout:
    """Rows of numbers, the lowest bits first. A scale is for a block of a row, or `down` a column."""

    rows: int
    columns: int
    block: int
    bits: int
    middle: float = 0.0  # the zero point of all, where none is given
    signed: bool = False
    down: bool = False

    @property
    def scales(self) -> tuple[int, int]:
        """How many there are."""
        over, along = (self.rows, self.columns)
        return (over // self.block, along) if self.down else (over, along // self.block)

    @property
    def fits(self) -> bool:
        wide = self.columns * self.bits % 8 == 0 and self.block * self.bits % 8 == 0
        whole = (self.rows if self.down else self.columns) % max(self.block, 1) == 0
        return self.bits in _TOGETHER and self.block > 1 and wide and whole


class UnpackedTensor(DerivedTensor):
    """A weight `(v - z) s`, with its scales in a format; `zeros` are one for all, or as many as scales."""

    def __init__(self, words: ir.TensorProtocol, scales: Weight, zeros: ir.TensorProtocol | None, at: _Layout) -> None:
        def begin() -> Making:
            packed = _bytes(words).reshape(at.rows, -1)
            factors, middles = _factors(scales, at), _zeros(zeros, at)
            numbers = _numbers(at, 0.0 if isinstance(middles, np.ndarray) else middles)
            step = math.lcm(at.block if not at.down else 1, 8 // at.bits)

            def whole(first: int, left: int, into: Array) -> None:
                """From that row and column on; it begins and ends with a block, and with a byte."""
                last, right = first + into.shape[0], left + into.shape[1]
                given = packed[first:last, left * at.bits // 8 : right * at.bits // 8]
                np.take(numbers, given, out=into.view(numbers.dtype), mode="clip")
                for by, each in ((np.subtract, middles), (np.multiply, factors)):
                    if isinstance(each, np.ndarray) and at.down:
                        by(into, each[np.arange(first, last) // at.block, left:right], out=into)
                    elif isinstance(each, np.ndarray):
                        blocks = into.reshape(into.shape[0], -1, at.block)
                        by(blocks, each[first:last, left // at.block : right // at.block, None], out=blocks)

            def make(part: Part, into: Array) -> None:
                rows, columns = (*part, slice(None))[:2]
                (first, last, _), (left, right, _) = rows.indices(at.rows), columns.indices(at.columns)
                start, stop = left // step * step, -(-right // step) * step
                several = max(1, _AT_ONCE // (stop - start))
                for row in range(first, last, several):
                    kept = into[row - first : min(row + several, last) - first]
                    cut = (start, stop) != (left, right) or not kept.flags.c_contiguous
                    room = np.empty((len(kept), stop - start), np.float32) if cut else kept
                    whole(row, start, room)
                    if cut:
                        kept[...] = room[:, left - start : right - start]

            return make

        known = hashlib.sha256(f"{at} {scales.fmt}".encode())
        for tensor in (scales.tensor, zeros):
            known.update(b"" if tensor is None else stored_tensor(tensor).tobytes())
        super().__init__(words, known.digest(), begin, shape=(at.rows, at.columns))
        self._scales, self._at = scales, at

    @cached_property
    def most(self) -> float:
        """No value is beyond it."""
        return float(np.abs(_factors(self._scales, self._at)).max()) * 2.0**self._at.bits


_Key = tuple[ir.TensorProtocol, Format | None, ir.TensorProtocol | None, _Layout]
_MADE: WeakKeyDictionary[ir.TensorProtocol, WeakValueDictionary[_Key, UnpackedTensor]] = WeakKeyDictionary()


def has_packed(proto: onnx.ModelProto) -> bool:
    """Whether a kernel is far slower where it may not order its weights."""
    return any(node.op_type == "MatMulNBits" and node.domain == DOMAIN for node in proto.graph.node)


def with_unpacked(proto: onnx.ModelProto, weights: Sequence[Weight]) -> tuple[onnx.ModelProto, tuple[Weight, ...]]:
    """The model with plain products in their place, and the weights that it takes."""
    known = {weight.name: weight for weight in weights}
    found = {
        node.output[0]: tensor
        for node in proto.graph.node
        if (tensor := unpacked_weight(node, known) or dequantised_weight(node, known)) is not None
    }
    if not found:
        return proto, tuple(weights)
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    kept = {value.name for value in proto.graph.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        for name in reads_of(node):
            readers.setdefault(name, []).append(node)
    tables = {node.output[0] for node in proto.graph.node if node.op_type == "DequantizeLinear"}
    given = [
        _as_read(result, tensor, readers, kept)
        if result in tables
        else (Weight(_name(result), tensor, Format.FP32), [])
        for result, tensor in found.items()
    ]
    new, gone = [weight for weight, _ in given], {name for _, names in given for name in names}
    plain = [each for node in made.graph.node for each in _plain(node, node.output[0] in found)]
    nodes = [node for node in plain if gone.isdisjoint(node.output)]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    read = kept.union(*map(reads_of, nodes))
    held = [tensor for tensor in made.graph.initializer if tensor.name in read or tensor.name not in known]
    del made.graph.initializer[:]
    made.graph.initializer.extend(held)
    for weight in new:
        declared = declared_weight(weight.name, onnx.TensorProto.FLOAT, weight.tensor.shape.numpy())
        made.graph.initializer.append(declared)
    left = {tensor.name for tensor in held}
    return made, (*(weight for weight in weights if weight.name in left), *new)


def unpacked_weight(node: onnx.NodeProto, weights: Mapping[str, Weight]) -> UnpackedTensor | None:
    """The weight that a product multiplies with; None where it is small, no constant, or in another order."""
    if node.op_type != "MatMulNBits" or node.domain != DOMAIN:
        return None
    words, scales, zeros, order = (node.input[slot] if slot < len(node.input) else "" for slot in range(1, 5))
    stated = {attribute.name: attribute.i for attribute in node.attribute}
    bits = stated.get("bits", 4)
    at = _Layout(stated.get("N", 0), stated.get("K", 0), stated.get("block_size", 0), bits, 2.0 ** (bits - 1))
    if order or stated.get("weight_prepacked") or any(each not in weights for each in (words, scales, zeros) if each):
        return None
    middles = weights[zeros].tensor if zeros else None
    return _unpacked(weights[words].tensor, weights[scales], middles, at, (ir.DataType.UINT8,))


def dequantised_weight(node: onnx.NodeProto, weights: Mapping[str, Weight]) -> UnpackedTensor | None:
    """What a DequantizeLinear makes of a table with a scale for each block; None of others."""
    if node.op_type != "DequantizeLinear" or node.domain:
        return None
    words, scales, zeros = (node.input[slot] if slot < len(node.input) else "" for slot in range(3))
    stated = {attribute.name: attribute.i for attribute in node.attribute}
    if any(each not in weights for each in (words, scales, zeros) if each):
        return None
    packed = stored_tensor(weights[words].tensor)
    if len(packed.shape) != 2 or packed.dtype not in _QUANTISED:
        return None
    down, signed = stated.get("axis", 1) % 2 == 0, packed.dtype in (ir.DataType.INT4, ir.DataType.INT8)
    rows, columns = packed.shape.numpy()
    at = _Layout(rows, columns, stated.get("block_size", 0), packed.dtype.bitwidth, signed=signed, down=down)
    middles = weights[zeros].tensor if zeros else None
    return _unpacked(packed, weights[scales], middles, at, _QUANTISED)


def _unpacked(
    words: ir.TensorProtocol,
    scales: Weight,
    zeros: ir.TensorProtocol | None,
    at: _Layout,
    types: Collection[ir.DataType],
) -> UnpackedTensor | None:
    """The same object for the same weight: what is kept is kept by it."""
    packed = stored_tensor(words)
    if 4 * at.rows * at.columns < LARGE_BYTES or not at.fits or packed.dtype not in types:
        return None
    if packed.nbytes * 8 != at.rows * at.columns * at.bits or scales.tensor.size != math.prod(at.scales):
        return None
    key = (stored_tensor(scales.tensor), scales.fmt, None if zeros is None else stored_tensor(zeros), at)
    made = _MADE.setdefault(packed, WeakValueDictionary())
    found = made.get(key)
    if found is None:
        found = made[key] = UnpackedTensor(packed, scales, zeros, at)
    return found


def _as_read(
    result: str, tensor: UnpackedTensor, readers: Mapping[str, Sequence[onnx.NodeProto]], kept: Collection[str]
) -> tuple[Weight, list[str]]:
    """What is dequantised, and the names of what is made on the way to it: it is rounded to FP16 where that is all that
    is done with it."""
    ends = [result]
    for kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT):
        (reader, *others) = readers.get(ends[-1], ()) or (None,)
        if reader is None or others or reader.op_type != "Cast" or ends[-1] in kept or _target(reader) != kind:
            return Weight(result, tensor, Format.FP32), [result]
        ends.append(reader.output[0])
    if tensor.most > Format.FP16.max:
        return Weight(result, tensor, Format.FP32), [result]
    return Weight(ends[-1], tensor, Format.FP16), ends


def _target(node: onnx.NodeProto) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0)


def plain_product(proto: onnx.ModelProto, weights: Mapping[str, Weight]) -> tuple[onnx.ModelProto, Weight] | None:
    """The model of one such node as a product of rows and a weight that lies the other way, and that weight."""
    (node, *stores), found = proto.graph.node, unpacked_weight(proto.graph.node[0], weights)
    if found is None or len(node.input) > 5:
        return None
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    table = _name(node.output[0])
    del made.graph.node[:], made.graph.input[1:]
    made.graph.node.append(helper.make_node("Gemm", [node.input[0], table], node.output, transB=1))
    made.graph.node.extend(stores)
    made.graph.input.append(helper.make_tensor_value_info(table, onnx.TensorProto.FLOAT, None))
    return made, Weight(table, found, Format.FP32)


def _plain(node: onnx.NodeProto, known: bool) -> Iterator[onnx.NodeProto]:
    if not known or node.op_type == "DequantizeLinear":
        yield node
        return
    (rows, *_), (result, *_) = node.input, node.output
    bias = node.input[5] if len(node.input) > 5 else ""
    table, turned = _name(result), f"{_name(result)}__turned"
    product = f"{result}__product" if bias else result
    yield helper.make_node("Transpose", [table], [turned], perm=[1, 0])
    yield helper.make_node("MatMul", [rows, turned], [product], node.name)
    if bias:
        yield helper.make_node("Add", [product, bias], [result])


def _name(result: str) -> str:
    return f"{result}__unpacked"


def _bytes(words: ir.TensorProtocol) -> NDArray[np.uint8]:
    stored = stored_tensor(words)
    return (
        np.asarray(stored.numpy()) if stored.dtype is ir.DataType.UINT8 else np.frombuffer(stored.tobytes(), np.uint8)
    )


def _numbers(at: _Layout, middle: float) -> Array:
    """What the numbers in each byte are."""
    shifts = np.arange(0, 8, at.bits, dtype=np.uint8)
    found = ((np.arange(256, dtype=np.uint8)[:, None] >> shifts) & ((1 << at.bits) - 1)).astype(np.float32)
    if at.signed:
        found -= (found >= 1 << (at.bits - 1)) * np.float32(1 << at.bits)
    return (found - np.float32(middle)).view(_TOGETHER[at.bits]).reshape(256)


def _factors(scales: Weight, at: _Layout) -> Array:
    given = stored_tensor(scales.tensor)
    found = np.asarray(given.numpy()) if scales.fmt is None else convert_weight(given, scales.fmt)
    return found.astype(np.float32).reshape(at.scales)


def _zeros(zeros: ir.TensorProtocol | None, at: _Layout) -> Array | float:
    """One for all where none are given; as several in a byte each row begins with one."""
    if zeros is None:
        return at.middle
    given = np.asarray(stored_tensor(zeros).numpy())
    if given.dtype != np.uint8 or at.bits == 8:
        return given.astype(np.float32).reshape(at.scales)
    shifts = np.arange(0, 8, at.bits, dtype=np.uint8)
    numbers = (given.reshape(at.rows, -1, 1) >> shifts) & ((1 << at.bits) - 1)
    return numbers.reshape(at.rows, -1)[:, : at.scales[1]].astype(np.float32)
