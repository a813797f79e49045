"""Packed weights of ONNX Runtime's own operators, as ONNX's types have them: INT4 or INT8, with a scale for each block.

A weight is `(v - z) s` with `v` from 0 to 2^bits - 1. With the middle m = 2^(bits - 1) it is `(v - m) s + (m - z) s`,
where `v - m` is what INT4 or INT8 holds. Where only positive scales are read, a negative one gives
`(m - 1 - v) |s| + (m - 1 - z) s`. Either `v - m` or `m - 1 - v` is `v` with some of its bits turned. What is left,
`shifts`, is 0 where the zero point is in the middle.

Nothing is read but when it is asked for, so that the weights of a large file are not in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.contrib.steps_products import unpacked
from halfwise.model.contrib.writer import dims_of, whole

__all__ = ["Packed", "four_bits", "packed_product", "packed_table", "positive"]

Array = NDArray[Any]

_KEPT = 1 << 14  # bytes of what is looked at often
_HELD = {2: ir.DataType.INT4, 4: ir.DataType.INT4, 8: ir.DataType.INT8}
_BYTE, _ALL_BITS = 8, 0xFF
_PACKED = frozenset({ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4})
_SIGNS = 0x88  # of two numbers of 4 bits


@dataclass(frozen=True, eq=False)
class Packed:
    """A matrix (rows, columns), each row in blocks with a scale, and a zero point where `zeros` is there."""

    words: ir.TensorProtocol
    scales: ir.TensorProtocol
    zeros: ir.TensorProtocol | None
    rows: int
    columns: int
    block: int
    bits: int

    @property
    def type(self) -> ir.DataType:
        return _HELD[self.bits]

    @property
    def blocks(self) -> int:
        return self.columns // self.block

    def numbers(self, *, signed: bool) -> ir.TensorProtocol:
        """What is stored, (rows, columns). `signed`: scales may be negative."""

        def made() -> ir.TensorProtocol:
            given, scales = _bytes(self.words).reshape(self.rows, self.blocks, -1), self._scales
            if self.bits == 2:
                return four_bits(self._wide(given, signed=signed))
            turned = given ^ np.uint8(self._middles)
            if not signed:
                turned[scales < 0] ^= np.uint8(_ALL_BITS)
            turned[scales == 0] = 0
            if self.bits == _BYTE:
                return ir.Tensor(turned.view(np.int8).reshape(self._shape))
            return ir.PackedTensor(turned.reshape(-1), ir.DataType.INT4, shape=self._shape)

        return _made(made, self.type, self._shape)

    def factors(self, *, signed: bool) -> ir.TensorProtocol:
        """The scales, (rows, blocks)."""

        def made() -> ir.TensorProtocol:
            return ir.tensor(positive(self._scales, signed=signed))

        return _made(made, ir.DataType.FLOAT, self._blocks_shape)

    def shifts(self, *, signed: bool) -> ir.TensorProtocol | None:
        """What all of a block is more than its numbers times its scale, (rows, blocks); None where that is nothing."""

        def made() -> ir.TensorProtocol:
            return ir.tensor(self._shift(signed=signed))

        return _made(made, ir.DataType.FLOAT, self._blocks_shape) if self._shift(signed=signed).any() else None

    @property
    def _shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def _blocks_shape(self) -> tuple[int, int]:
        return self.rows, self.blocks

    @property
    def _scales(self) -> NDArray[np.float32]:
        return np.asarray(self.scales.numpy(), np.float32).reshape(self._blocks_shape)

    @property
    def _middles(self) -> int:
        """The middle in each place of a byte."""
        return sum(1 << (place + self.bits - 1) for place in range(0, _BYTE, self.bits))

    @property
    def _whole_zeros(self) -> bool:
        return self.zeros is None or self.zeros.dtype in _PACKED

    def _zeros(self) -> NDArray[np.float32]:
        if self.zeros is None:
            usual = 0 if self.words.dtype is ir.DataType.UINT4 else 1 << (self.bits - 1)
            return np.full(self._blocks_shape, usual, np.float32)
        if not self._whole_zeros:
            return np.asarray(self.zeros.numpy(), np.float32).reshape(self._blocks_shape)
        given = _bytes(self.zeros)
        if self.zeros.dtype is ir.DataType.UINT8:  # each row begins with a byte
            return unpacked(given.reshape(self.rows, -1), self.bits, self.blocks)
        return unpacked(given.reshape(1, -1), self.bits, self.rows * self.blocks).reshape(self._blocks_shape)

    def _shift(self, *, signed: bool) -> NDArray[np.float32]:
        if self.bits == 2 and self._whole_zeros:  # whatever the zero point is, INT4 holds the difference
            return np.zeros(self._blocks_shape, np.float32)
        scales, middle = self._scales, np.float32(1 << (self.bits - 1))
        below = np.float32(0) if signed else np.where(scales < 0, np.float32(1), np.float32(0))
        return np.asarray((middle - below - self._zeros()) * scales, np.float32)

    def _wide(self, given: Array, *, signed: bool) -> NDArray[np.int8]:
        numbers = unpacked(given.reshape(self.rows, -1), 2, self.columns).reshape(*self._blocks_shape, self.block)
        zeros = self._zeros()[..., None] if self._whole_zeros else np.float32(2)
        found, scales = numbers - zeros, self._scales[..., None]
        if not signed:
            found = np.where(scales < 0, (0 if self._whole_zeros else -1) - found, found)
        found = np.where(scales == 0, 0, found)
        return found.reshape(self.rows, -1).astype(np.int8)


def packed_product(node: ir.Node) -> Packed | None:
    """The weight (N, K) of a MatMulNBits; None where it is no constant, in another order, or ends within a block."""
    if (len(node.inputs) > 4 and node.inputs[4] is not None) or whole(node, "weight_prepacked"):
        return None
    return _packed(_tensor(node, 1), node, (whole(node, "N"), whole(node, "K")), whole(node, "bits", 4))


def packed_table(node: ir.Node) -> Packed | None:
    """The table of a GatherBlockQuantized, where rows are picked from bytes with blocks along them; None of others."""
    value = node.inputs[0]
    maker = value.producer() if value is not None else None
    words = _tensor(maker, 0) if maker is not None and maker.op_type == "Reshape" else _tensor(node, 0)
    dims, bits = dims_of(node, 0) or (), whole(node, "bits", 4)
    rows, wide = dims if len(dims) == 2 else (None, None)
    along = whole(node, "gather_axis") % 2 == 0 and whole(node, "quantize_axis", 1) % 2 == 1
    if words is None or rows is None or wide is None or not along:
        return None
    columns = wide * _BYTE // bits if words.dtype is ir.DataType.UINT8 else wide
    return _packed(words, node, (rows, columns), bits, 128)


def _packed(
    words: ir.TensorProtocol | None, node: ir.Node, shape: tuple[int, int], bits: int, usual: int = 0
) -> Packed | None:
    scales, zeros = _tensor(node, 2), _tensor(node, 3)
    lacks_zeros = zeros is None and len(node.inputs) > 3 and node.inputs[3] is not None
    block, (rows, columns) = whole(node, "block_size", usual), shape
    if words is None or scales is None or lacks_zeros or bits not in _HELD or block < 2 or columns % block:
        return None
    found = Packed(words, scales, zeros, rows, columns, block, bits)
    fits = words.dtype in _PACKED and words.nbytes * _BYTE == rows * columns * bits and block * bits % _BYTE == 0
    return found if fits and scales.size == rows * found.blocks else None


def _tensor(node: ir.Node, slot: int) -> ir.TensorProtocol | None:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    return None if value is None else value.const_value


def _bytes(tensor: ir.TensorProtocol) -> NDArray[np.uint8]:
    """Of INT4 the numbers are from 0 on here, too: 8 more."""
    if tensor.dtype is ir.DataType.UINT8:
        return np.asarray(tensor.numpy())
    given = np.frombuffer(tensor.tobytes(), np.uint8)
    return given ^ np.uint8(_SIGNS) if tensor.dtype is ir.DataType.INT4 else given


def _made(make: Callable[[], ir.TensorProtocol], kind: ir.DataType, shape: tuple[int, ...]) -> ir.TensorProtocol:
    size = int(np.prod(shape)) * kind.bitwidth // _BYTE
    return ir.LazyTensor(make, kind, ir.Shape(shape), cache=size <= _KEPT)


def positive(scales: NDArray[np.float32], *, signed: bool) -> NDArray[np.float32]:
    """None of them 0, which is refused: of a block of zeros any other will do. `signed`: but below 0."""
    sizes = np.abs(scales)
    found = scales if signed else sizes
    if not found.all():
        found = np.where(sizes == 0, sizes.min(where=sizes > 0, initial=1.0), found)
    return np.ascontiguousarray(found, np.float32)


def four_bits(numbers: NDArray[np.int8]) -> ir.TensorProtocol:
    bits = numbers.reshape(-1).view(np.uint8) & 0xF
    if bits.size % 2:
        bits = np.append(bits, np.uint8(0))
    return ir.PackedTensor(bits[::2] | (bits[1::2] << 4), ir.DataType.INT4, shape=numbers.shape)
