"""Packed weights of ONNX Runtime's products as FP32 ones, made whenever they are read.

The runtime's own kernel, given a weight that it may not order for itself, makes all of it anew for every input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.formats import Format
from halfwise.emulation.given_weights import declared_weight
from halfwise.model.contrib.schemas import DOMAIN
from halfwise.model.weights import DerivedTensor, Making, Part, convert_weight, stored_tensor
from halfwise.precision.rewrite import Weight

__all__ = ["UnpackedTensor", "has_packed", "plain_product", "unpacked_weight", "with_unpacked"]

Array = NDArray[Any]

LARGE_BYTES = 1 << 20  # of a weight in FP32
_AT_ONCE = 1 << 17  # numbers that are made together: they stay in the processor's cache
_TOGETHER = {2: np.complex128, 4: np.complex64, 8: np.float32}  # what holds all the numbers of a byte in FP32


@dataclass(frozen=True)
class _Layout:
    """So many rows of blocks, each with a scale."""

    rows: int
    blocks: int
    block: int
    bits: int


class UnpackedTensor(DerivedTensor):
    """The weight (N, K) of a MatMulNBits, `(v - z) s`, with its scales in a format."""

    def __init__(self, words: ir.TensorProtocol, scales: Weight, zeros: ir.TensorProtocol | None, at: _Layout) -> None:
        def begin() -> Making:
            packed = np.asarray(stored_tensor(words).numpy()).reshape(at.rows, -1)
            factors, middles = _factors(scales, at), _zeros(zeros, at)
            numbers = _numbers(at.bits, 0.0 if isinstance(middles, np.ndarray) else middles)

            def whole(start: int, into: Array) -> None:
                stop = start + len(into)
                np.take(numbers, packed[start:stop], out=into.view(numbers.dtype), mode="clip")
                blocks = into.reshape(len(into), at.blocks, at.block)
                if isinstance(middles, np.ndarray):
                    np.subtract(blocks, middles[start:stop], out=blocks)
                np.multiply(blocks, factors[start:stop], out=blocks)

            def make(part: Part, into: Array) -> None:
                rows, *others = part
                first, last, _ = rows.indices(at.rows)
                several = max(1, _AT_ONCE // (at.blocks * at.block))
                for start in range(first, last, several):
                    stop = min(start + several, last)
                    kept = into[start - first : stop - first]
                    room = np.empty((stop - start, at.blocks * at.block), np.float32) if others else kept
                    whole(start, room)
                    if others:
                        kept[...] = room[(slice(None), *others)]

            return make

        known = hashlib.sha256(f"{at} {scales.fmt}".encode())
        for tensor in (scales.tensor, zeros):
            known.update(b"" if tensor is None else stored_tensor(tensor).tobytes())
        super().__init__(words, known.digest(), begin, shape=(at.rows, at.blocks * at.block))


_Key = tuple[ir.TensorProtocol, Format | None, ir.TensorProtocol | None, _Layout]
_MADE: WeakKeyDictionary[ir.TensorProtocol, WeakValueDictionary[_Key, UnpackedTensor]] = WeakKeyDictionary()


def has_packed(proto: onnx.ModelProto) -> bool:
    """Whether a kernel is far slower where it may not order its weights."""
    return any(node.op_type == "MatMulNBits" and node.domain == DOMAIN for node in proto.graph.node)


def with_unpacked(proto: onnx.ModelProto, weights: Sequence[Weight]) -> tuple[onnx.ModelProto, tuple[Weight, ...]]:
    """The model with plain products in their place, and the weights that it takes."""
    known = {weight.name: weight for weight in weights}
    found = {
        node.output[0]: tensor for node in proto.graph.node if (tensor := unpacked_weight(node, known)) is not None
    }
    if not found:
        return proto, tuple(weights)
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    nodes = [each for node in made.graph.node for each in _plain(node, node.output[0] in found)]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in made.graph.initializer if tensor.name in read or tensor.name not in known]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    new = [Weight(_name(result), tensor, Format.FP32) for result, tensor in found.items()]
    for weight in new:
        declared = declared_weight(weight.name, onnx.TensorProto.FLOAT, weight.tensor.shape.numpy())
        made.graph.initializer.append(declared)
    left = {tensor.name for tensor in kept}
    return made, (*(weight for weight in weights if weight.name in left), *new)


def unpacked_weight(node: onnx.NodeProto, weights: Mapping[str, Weight]) -> UnpackedTensor | None:
    """The weight that a product multiplies with; None where it is small, no constant, or in another order."""
    if node.op_type != "MatMulNBits" or node.domain != DOMAIN:
        return None
    words, scales, zeros, order = (node.input[slot] if slot < len(node.input) else "" for slot in range(1, 5))
    stated = {attribute.name: attribute.i for attribute in node.attribute}
    rows, columns, block, bits = (stated.get(name, 0) for name in ("N", "K", "block_size", "bits"))
    constant = words in weights and scales in weights and (not zeros or zeros in weights)
    if order or stated.get("weight_prepacked") or not constant or 4 * rows * columns < LARGE_BYTES:
        return None
    packed, factors = stored_tensor(weights[words].tensor), weights[scales]
    at = _Layout(rows, columns // max(block, 1), block, bits or 4)
    fits = packed.dtype is ir.DataType.UINT8 and at.bits in _TOGETHER and at.blocks * block == columns
    if not fits or packed.nbytes * 8 != rows * columns * at.bits or factors.tensor.size != rows * at.blocks:
        return None
    middles = weights[zeros].tensor if zeros else None
    key = (stored_tensor(factors.tensor), factors.fmt, None if middles is None else stored_tensor(middles), at)
    made = _MADE.setdefault(packed, WeakValueDictionary())
    found = made.get(key)
    if found is None:
        found = made[key] = UnpackedTensor(packed, factors, middles, at)
    return found


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
    if not known:
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


def _numbers(bits: int, middle: float) -> Array:
    """What the numbers in each byte are, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    found = (np.arange(256, dtype=np.uint8)[:, None] >> shifts) & ((1 << bits) - 1)
    return (found.astype(np.float32) - np.float32(middle)).view(_TOGETHER[bits]).reshape(256)


def _factors(scales: Weight, at: _Layout) -> Array:
    given = stored_tensor(scales.tensor)
    found = np.asarray(given.numpy()) if scales.fmt is None else convert_weight(given, scales.fmt)
    return found.astype(np.float32).reshape(at.rows, at.blocks, 1)


def _zeros(zeros: ir.TensorProtocol | None, at: _Layout) -> Array | float:
    """One for all where none are given; in whole numbers each row begins with a byte."""
    if zeros is None:
        return float(1 << (at.bits - 1))
    given = np.asarray(stored_tensor(zeros).numpy())
    if given.dtype != np.uint8:
        return given.astype(np.float32).reshape(at.rows, at.blocks, 1)
    shifts = np.arange(0, 8, at.bits, dtype=np.uint8)
    numbers = (given.reshape(at.rows, -1, 1) >> shifts) & ((1 << at.bits) - 1)
    return numbers.reshape(at.rows, -1)[:, : at.blocks, None].astype(np.float32)
