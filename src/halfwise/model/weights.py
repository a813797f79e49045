"""Brings a weight into a format as TensorRT does: to nearest, finite overflow clamped to the largest value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import ahead, in_blocks
from halfwise.core.errors import InputError
from halfwise.core.fast_casts import cast_fast
from halfwise.core.formats import Format, cast_to

__all__ = [
    "DerivedTensor",
    "Making",
    "Part",
    "WidenedTensor",
    "convert_array",
    "convert_fill",
    "convert_weight",
    "place_of",
    "rows_of",
    "stored_tensor",
    "stored_type",
    "to_tensor_proto",
    "weight_content",
    "whole_tensor",
]

Part = tuple[slice, ...]  # of an array, along its first axes
Making = Callable[[Part, NDArray[Any]], object]

_PIECE_BYTES = 4 << 20
_BLOCK = 1 << 18  # elements that are made together
_ROOMS: SimpleQueue[bytearray] = SimpleQueue()
_KEPT = 1 << 14  # elements of a weight that rules look at often


class DerivedTensor(ir.LazyTensor):
    """A weight of FP32 made of another one whenever it is read; the two and `recipe` say which values these are.

    `begin` reads the source, and gives what writes the part at an index into an array; `factors`, where there are any,
    make it of the source. Without a `shape` it has that of its source.
    """

    def __init__(
        self,
        source: ir.TensorProtocol,
        recipe: bytes,
        begin: Callable[[], Making],
        factors: Callable[[], Sequence[NDArray[Any]]] = tuple,
        shape: Sequence[int] | None = None,
    ) -> None:
        def whole() -> ir.TensorProtocol:
            made, make = np.empty(self.shape.numpy(), np.float32), begin()
            in_blocks(lambda start, stop: make((slice(start, stop),), made[start:stop]), len(made), rows_of(self))
            return ir.tensor(made)

        super().__init__(whole, ir.DataType.FLOAT, ir.Shape(shape or source.shape.numpy()), cache=False)
        self.source, self.recipe, self.begin, self.factors = source, recipe, begin, factors


class WidenedTensor(ir.LazyTensor):
    """A 16-bit weight as FP32, which is exact. It is widened whenever it is read, and only kept where it is small."""

    def __init__(self, stored: ir.TensorProtocol) -> None:
        def widened() -> ir.TensorProtocol:
            return ir.tensor(np.asarray(stored.numpy()).astype(np.float32))

        shape, kept = ir.Shape(stored.shape.numpy()), stored.size <= _KEPT
        super().__init__(widened, ir.DataType.FLOAT, shape, cache=kept, name=stored.name)
        self.stored = stored


def rows_of(tensor: ir.TensorProtocol) -> int:
    """Of a weight that is made, how many are made together."""
    return max(1, _BLOCK * tensor.shape.numpy()[0] // tensor.size)


def stored_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """As the file has it."""
    return tensor.stored if isinstance(tensor, WidenedTensor) else tensor


def stored_type(tensor: ir.TensorProtocol) -> ir.DataType:
    """The type that the file has it in."""
    return stored_tensor(tensor).dtype


def place_of(tensor: ir.TensorProtocol) -> Hashable:
    """Equal for weights of one type and shape that the file has at one place; None where it has a place for each."""
    stored = stored_tensor(tensor)
    if not isinstance(stored, ir.ExternalTensor):
        return None
    return stored.path, stored.offset, stored.dtype, tensor.dtype, tuple(tensor.shape.numpy())


def convert_weight(tensor: ir.TensorProtocol, fmt: Format) -> NDArray[Any]:
    """The weight in `fmt`: round to nearest even; finite values beyond the range become the largest finite value."""
    return convert_array(np.asarray(stored_tensor(tensor).numpy()), fmt)[0]


def convert_array(array: NDArray[Any], fmt: Format) -> tuple[NDArray[Any], bool]:
    """The same of an array, and whether any value was beyond the range."""
    if array.dtype == fmt.dtype:
        return array, False
    wide = np.asarray(array, dtype=np.float32)
    if not fmt.narrow:
        return wide, False
    narrow = np.empty(wide.shape, fmt.dtype)
    if not cast_fast(wide, narrow):
        narrow = cast_to(wide, fmt)
    if wide.size and -fmt.max <= float(wide.min()) and float(wide.max()) <= fmt.max:
        return narrow, False
    lost = np.abs(wide) > fmt.max if fmt.saturating else np.isinf(narrow)
    if lost.any():
        lost &= np.isfinite(wide)
        narrow = np.where(lost, np.copysign(np.asarray(fmt.max, dtype=np.float32), wide).astype(fmt.dtype), narrow)
        return narrow, bool(lost.any())
    return narrow, False


def weight_content(tensor: ir.TensorProtocol, fmt: Format | None) -> Iterator[tuple[bytes | memoryview, bool]]:
    """The bytes of a weight in `fmt` (None: as it is) piece by piece, each with whether a value was beyond the range.

    External data is read from its file, never mapped, so that memory stays bounded however large the model is.
    """
    if isinstance(tensor, WidenedTensor) and fmt is not None:
        tensor = tensor.stored
    if isinstance(tensor, ir.ExternalTensor):
        starts = range(0, tensor.nbytes, _PIECE_BYTES)
        yield from ahead(lambda start: _piece(tensor, start, fmt), starts)
    elif isinstance(tensor, DerivedTensor):
        (whole, *others), rows, make = tensor.shape.numpy(), rows_of(tensor), tensor.begin()

        def made(start: int) -> tuple[memoryview, bool]:
            piece = np.empty((min(rows, whole - start), *others), np.float32)
            make((slice(start, start + rows),), piece)
            narrow, clamped = convert_array(piece, fmt or Format.FP32)
            return narrow.reshape(-1).view(np.uint8).data, clamped

        yield from ahead(made, range(0, whole, rows))
    elif fmt is None:
        yield bytes(tensor.tobytes()), False
    else:
        array, clamped = convert_array(np.asarray(tensor.numpy()), fmt)
        yield np.ascontiguousarray(array).tobytes(), clamped


def _piece(tensor: ir.ExternalTensor, start: int, fmt: Format | None) -> tuple[bytes | memoryview, bool]:
    length, as_it_is = min(tensor.nbytes - start, _PIECE_BYTES), fmt is None or tensor.dtype.value == fmt.onnx_type
    room = bytearray(length) if as_it_is else _room()
    piece = memoryview(room)[:length]
    with Path(tensor.path).open("rb") as file:
        file.seek((tensor.offset or 0) + start)
        if file.readinto(piece) < length:
            raise InputError(f"{tensor.path} ends before initializer {tensor.name!r}; copy the file again")
    if fmt is None or as_it_is:
        return piece, False
    narrow, clamped = convert_array(np.frombuffer(piece, dtype=tensor.dtype.numpy()), fmt)
    _ROOMS.put(room)
    return narrow.view(np.uint8).data, clamped


def _room() -> bytearray:
    """To read a piece into; memory is slow when it is first written."""
    try:
        return _ROOMS.get_nowait()
    except Empty:
        return bytearray(_PIECE_BYTES)


def to_tensor_proto(name: str, array: NDArray[Any], fmt: Format) -> onnx.TensorProto:
    """A whole initializer."""
    proto = onnx.TensorProto(name=name, data_type=fmt.onnx_type, dims=array.shape)
    proto.raw_data = np.ascontiguousarray(array).tobytes()
    return proto


def whole_tensor(name: str, tensor: ir.TensorProtocol) -> onnx.TensorProto:
    """An initializer as it is, with its content even where that stands in a file of its own."""
    if isinstance(tensor, ir.ExternalTensor):
        content = b"".join(piece for piece, _ in weight_content(tensor, None))
        return onnx.TensorProto(name=name, data_type=tensor.dtype.value, dims=tensor.shape.numpy(), raw_data=content)
    proto = ir.serde.serialize_tensor(tensor)
    proto.name = name
    return proto


def convert_fill(proto: onnx.NodeProto, fmt: Format, carrier: Format) -> bool:
    """Bring the value of a ConstantOfShape into `fmt`, spelled in `carrier`; says whether it was beyond the range."""
    value = next((attribute for attribute in proto.attribute if attribute.name == "value"), None)
    fill = np.zeros(1, dtype=np.float32)
    if value is None:
        value = proto.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    else:
        fill = np.asarray(ir.serde.deserialize_tensor(value.t).numpy())
    narrow, clamped = convert_array(fill, fmt)
    value.t.CopyFrom(to_tensor_proto("", convert_array(narrow, carrier)[0], carrier))
    return clamped
