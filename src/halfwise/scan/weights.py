"""Reads initializers window by window, and counts what FP16 holds badly in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from halfwise.errors import InputError
from halfwise.formats import Counts, FloatArray, count
from halfwise.model import Model

__all__ = ["Elements", "InitializerCounts", "count_initializers", "merged"]

WINDOW = 1 << 20  # elements held at a time


@dataclass(frozen=True)
class InitializerCounts:
    """One FP32 initializer and how its values lie in FP16."""

    name: str
    counts: Counts

    @property
    def affected(self) -> bool:
        """Whether FP16 holds any of its values badly."""
        return bool(self.counts.subnormal or self.counts.underflow or self.counts.overflow or self.counts.nonfinite)


class Elements:
    """The elements of an FP32 tensor in their order, read where they lie: a file is never read as a whole."""

    def __init__(self, tensor: ir.TensorProtocol) -> None:
        self.size = int(tensor.size)
        self._file = tensor if isinstance(tensor, ir.ExternalTensor) else None
        self._array = None if self._file is not None else np.asarray(tensor.numpy(), dtype=np.float32).reshape(-1)

    def read(self, start: int, stop: int) -> FloatArray:
        if self._array is not None:
            return self._array[start:stop]
        assert self._file is not None
        try:
            found = np.fromfile(
                self._file.path, dtype="<f4", count=stop - start, offset=(self._file.offset or 0) + 4 * start
            )
        except OSError as error:
            raise InputError(f"{self._file.path} cannot be read: {error.strerror}") from error
        if found.size < stop - start:
            raise InputError(f"{self._file.path} ends before initializer {self._file.name!r}; copy the file again")
        return found.astype(np.float32, copy=False)

    def windows(self, step: int = WINDOW) -> Iterator[FloatArray]:
        for start in range(0, self.size, step):
            yield self.read(start, min(start + step, self.size))


def count_initializers(model: Model) -> list[tuple[ir.Value, InitializerCounts]]:
    """The counts of each FP32 initializer, those of subgraphs included; a shared one counts once."""
    found: dict[ir.Value, InitializerCounts] = {}
    for value in model.initializers():
        tensor = value.const_value
        if tensor is not None and tensor.dtype == ir.DataType.FLOAT and value not in found:
            found[value] = InitializerCounts(value.name or "", merged(map(count, Elements(tensor).windows())))
    return list(found.items())


def merged(parts: Iterable[Counts]) -> Counts:
    """The counts of several arrays taken together."""
    kept = [part for part in parts if part.count]
    finite = [part for part in kept if part.count > part.nonfinite]
    return Counts(
        count=sum(part.count for part in kept),
        subnormal=sum(part.subnormal for part in kept),
        underflow=sum(part.underflow for part in kept),
        overflow=sum(part.overflow for part in kept),
        nonfinite=sum(part.nonfinite for part in kept),
        min=min((part.min for part in finite), default=0.0),
        max=max((part.max for part in finite), default=0.0),
        max_abs=max((part.max_abs for part in finite), default=0.0),
        min_abs=min((part.min_abs for part in finite if part.min_abs > 0), default=0.0),
    )
