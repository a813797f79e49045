"""Random weights, streamed into one external data file as the graph names them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray

__all__ = ["BLOCK", "QUANTISED", "STORED", "Array", "WeightFile"]

Array = NDArray[Any]

STORED: dict[str, tuple[int, np.dtype[Any]]] = {
    "fp32": (onnx.TensorProto.FLOAT, np.dtype(np.float32)),
    "fp16": (onnx.TensorProto.FLOAT16, np.dtype(np.float16)),
    "bf16": (onnx.TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
    "int4": (onnx.TensorProto.FLOAT, np.dtype(np.float32)),  # of products, whose weights are packed; all else is FP32
    "int8": (onnx.TensorProto.FLOAT, np.dtype(np.float32)),  # the same, with a scale for each column
    "fp8": (onnx.TensorProto.FLOAT, np.dtype(np.float32)),  # E4M3, with one scale for all
}
QUANTISED = {
    "int8": (onnx.TensorProto.INT8, np.dtype(np.int8), 127 / 5),
    "fp8": (onnx.TensorProto.FLOAT8E4M3FN, np.dtype(ml_dtypes.float8_e4m3fn), 448 / 6),
}
BLOCK = 32  # packed numbers with one scale
_POOL = 1 << 22  # random numbers, of which every weight takes windows
_ALIGNMENT = 4096


class WeightFile:
    """Weights go to the file row by row in pieces; at most one piece is held."""

    def __init__(self, path: Path, stored: str, seed: int = 0) -> None:
        self.path = path
        self.stored = stored
        self.type, self.dtype = STORED[stored]
        self.rng = np.random.default_rng(seed)
        pool = self.rng.standard_normal(_POOL, np.float32)
        self._pool = np.concatenate([pool, pool])  # so that a window may begin anywhere
        self._file: IO[bytes] = path.open("wb")

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def random(
        self,
        name: str,
        shape: tuple[int, int],
        deviation: float,
        plant: Callable[[Array, int], None] = lambda rows, first: None,
    ) -> onnx.TensorProto:
        """`plant` may change each piece of rows, which it gets with the number of the first of them."""
        rows, columns = shape
        offset, step = self._start(), max(1, _POOL // columns)
        for first in range(0, rows, step):
            count = min(step, rows - first)
            start = int(self.rng.integers(_POOL))
            piece = self._pool[start : start + count * columns].reshape(count, columns) * np.float32(deviation)
            plant(piece, first)
            self._file.write(piece.astype(self.dtype, copy=False).view(np.uint8).data)
        return self._declared(name, shape, offset)

    def packed(self, name: str, rows: int, columns: int, deviation: float) -> tuple[onnx.TensorProto, onnx.TensorProto]:
        """The same as numbers of 4 bits for a product of `rows` that are summed, two to a byte, and their scales."""
        blocks, offset = rows // BLOCK, self._start()
        words, steps = self._packed_pool
        step, scales = max(1, _POOL // rows), np.empty((columns, blocks), np.float32)
        for first in range(0, columns, step):
            count = min(step, columns - first)
            start = int(self.rng.integers(len(steps) // 2))
            self._file.write(words[start : start + count * blocks].data)
            scales[first : first + count] = steps[start : start + count * blocks].reshape(count, blocks)
        given = self._declared(name, (columns, blocks, BLOCK // 2), offset, onnx.TensorProto.UINT8)
        return given, self.given(f"{name}.scales", scales.reshape(-1) * deviation)

    @cached_property
    def _packed_pool(self) -> tuple[Array, Array]:
        """The random numbers in blocks, each rounded to the steps that reach its largest, and these."""
        values = self._pool.reshape(-1, BLOCK)
        steps = np.abs(values).max(axis=1) / np.float32(7)
        numbers = (np.rint(values / steps[:, None]) + 8).astype(np.uint8)
        return np.ascontiguousarray(numbers[:, ::2] | numbers[:, 1::2] << 4), steps

    def quantised(
        self, name: str, rows: int, columns: int, deviation: float
    ) -> tuple[onnx.TensorProto, onnx.TensorProto]:
        """The same as numbers of 8 bits and their scales, for DequantizeLinear along the second axis."""
        (kind, dtype, largest), offset, step = QUANTISED[self.stored], self._start(), max(1, _POOL // columns)
        for first in range(0, rows, step):
            count, start = min(step, rows - first), int(self.rng.integers(_POOL))
            piece = self._pool[start : start + count * columns] * np.float32(largest)
            piece = np.clip(np.rint(piece), -127, 127) if dtype.kind == "i" else piece
            self._file.write(piece.astype(dtype).view(np.uint8).data)
        table = self._declared(name, (rows, columns), offset, kind)
        scales = np.full(columns if dtype.kind == "i" else (), deviation / largest)
        return table, self.given(f"{name}.scale", scales)

    def given(self, name: str, array: Array) -> onnx.TensorProto:
        offset = self._start()
        self._file.write(array.astype(self.dtype).tobytes())
        return self._declared(name, array.shape, offset)

    def _start(self) -> int:
        self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
        return self._file.tell()

    def _declared(self, name: str, shape: tuple[int, ...], offset: int, kind: int = 0) -> onnx.TensorProto:
        proto = onnx.TensorProto(name=name, data_type=kind or self.type, dims=shape)
        proto.data_location = onnx.TensorProto.EXTERNAL
        fields = {"location": self.path.name, "offset": offset, "length": self._file.tell() - offset}
        for key, value in fields.items():
            proto.external_data.add(key=key, value=str(value))
        return proto
