"""Random weights, streamed into one external data file as the graph names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray

__all__ = ["STORED", "Array", "WeightFile"]

Array = NDArray[Any]

STORED: dict[str, tuple[int, np.dtype[Any]]] = {
    "fp32": (onnx.TensorProto.FLOAT, np.dtype(np.float32)),
    "fp16": (onnx.TensorProto.FLOAT16, np.dtype(np.float16)),
    "bf16": (onnx.TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
}
_POOL = 1 << 22  # random numbers, of which every weight takes windows
_ALIGNMENT = 4096


class WeightFile:
    """Weights go to the file row by row in pieces; at most one piece is held."""

    def __init__(self, path: Path, stored: str, seed: int = 0) -> None:
        self.path = path
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

    def given(self, name: str, array: Array) -> onnx.TensorProto:
        offset = self._start()
        self._file.write(array.astype(self.dtype).tobytes())
        return self._declared(name, array.shape, offset)

    def _start(self) -> int:
        self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
        return self._file.tell()

    def _declared(self, name: str, shape: tuple[int, ...], offset: int) -> onnx.TensorProto:
        proto = onnx.TensorProto(name=name, data_type=self.type, dims=shape)
        proto.data_location = onnx.TensorProto.EXTERNAL
        fields = {"location": self.path.name, "offset": offset, "length": self._file.tell() - offset}
        for key, value in fields.items():
            proto.external_data.add(key=key, value=str(value))
        return proto
