"""The elements of a stored float tensor, read where they lie: of a file only a window is mapped at a time."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import cores
from halfwise.core.counting import Counter, Counts
from halfwise.core.errors import InputError
from halfwise.core.formats import FORMATS
from halfwise.model.weights import WidenedTensor

__all__ = ["STORED_TYPES", "WINDOW", "Elements", "Stretch", "count_all", "merged"]

WINDOW = 1 << 20  # elements held at a time where they are worked on
STORED_TYPES = {**{name: fmt.dtype for name, fmt in FORMATS.items()}, "fp64": np.dtype(np.float64)}
_SHARE = 1 << 26  # bytes that one thread counts at a time, and maps at most


@dataclass(frozen=True)
class Stretch:
    """Elements in a file, little-endian and without gaps. `whose` names the tensor in a message."""

    path: Path
    offset: int
    dtype: np.dtype[Any]
    size: int
    whose: str


class Elements:
    """The elements of a tensor in their order, in memory or in a file."""

    def __init__(self, source: ir.TensorProtocol | NDArray[Any] | Stretch) -> None:
        self._array: NDArray[Any] | None = None
        self._file: Stretch | None = None
        source = source.stored if isinstance(source, WidenedTensor) else source
        if isinstance(source, Stretch):
            self._file = source
        elif isinstance(source, ir.ExternalTensor):
            whose = f"initializer {source.name!r}"
            self._file = Stretch(Path(source.path), source.offset or 0, source.dtype.numpy(), int(source.size), whose)
        else:
            array = source if isinstance(source, np.ndarray) else np.asarray(source.numpy())
            self._array = array.reshape(-1)
        self.dtype = self._file.dtype if self._file is not None else self._array.dtype  # type: ignore[union-attr]
        self.size = self._file.size if self._file is not None else self._array.size  # type: ignore[union-attr]

    def stored(self, start: int, stop: int) -> NDArray[Any]:
        """Some of the elements as they are stored; those of a file are mapped as long as the array lives."""
        if self._array is not None:
            return self._array[start:stop]
        assert self._file is not None
        return _mapped(self._file, start, stop)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Some of the elements in FP32, or in double precision where they are stored so."""
        found = self.stored(start, stop)
        return found if found.dtype == np.float64 else found.astype(np.float32, copy=False)

    def windows(self, step: int = WINDOW) -> Iterator[NDArray[Any]]:
        for start in range(0, self.size, step):
            yield self.read(start, min(start + step, self.size))


def _mapped(file: Stretch, start: int, stop: int) -> NDArray[Any]:
    first = file.offset + file.dtype.itemsize * start
    length = file.dtype.itemsize * (stop - start)
    before = first % mmap.ALLOCATIONGRANULARITY
    try:
        with file.path.open("rb") as stream:
            if first + length > os.fstat(stream.fileno()).st_size:
                raise InputError(f"{file.path} ends before {file.whose}; copy the file again")
            if not length:
                return np.empty(0, file.dtype)
            content = _map(stream.fileno(), before + length, first - before)
    except OSError as error:
        raise InputError(f"{file.path} cannot be read: {error.strerror}") from error
    return np.frombuffer(content, dtype=file.dtype.newbyteorder("="), count=stop - start, offset=before)


def _map(file: int, length: int, offset: int) -> mmap.mmap:
    """All of the window is read: where the system can, its pages are fetched at once, not each as it is touched."""
    if not hasattr(mmap, "MAP_POPULATE"):
        return mmap.mmap(file, length, access=mmap.ACCESS_READ, offset=offset)
    return mmap.mmap(file, length, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ, offset=offset)


def count_all(tensors: Sequence[Elements], done: Callable[[int], None] = lambda values: None) -> list[Counts]:
    """The counts of each tensor, on all the processor's cores: numpy lets go of the interpreter while it works.

    `done` gets how many more values are counted.
    """
    shares = [
        (index, start, min(start + _SHARE // tensor.dtype.itemsize, tensor.size))
        for index, tensor in enumerate(tensors)
        for start in range(0, max(tensor.size, 1), _SHARE // tensor.dtype.itemsize)
    ]
    parts: list[list[Counts]] = [[] for _ in tensors]
    sizes = [tensors[index].dtype.itemsize * (stop - start) for index, start, stop in shares]
    threads = min(cores(), 2 * sum(sizes) // _SHARE + 1)

    def work(jobs: Sequence[tuple[int, int, int]]) -> list[tuple[int, Counts]]:
        return [(index, _count(tensors[index], start, stop)) for index, start, stop in jobs]

    if threads == 1:
        for index, counts in work(shares):
            parts[index].append(counts)
            done(counts.count)
        return [merged(found) for found in parts]
    pool = ThreadPoolExecutor(threads)
    try:
        for bundle in pool.map(work, _bundles(shares, sizes)):
            for index, counts in bundle:
                parts[index].append(counts)
                done(counts.count)
    finally:
        pool.shutdown(cancel_futures=True)
    return [merged(found) for found in parts]


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
        densest=max((part.densest for part in kept), default=0),
    )


def _count(tensor: Elements, start: int, stop: int) -> Counts:
    counter = Counter(tensor.dtype)
    counter.add(tensor.stored(start, stop))
    return counter.counts()


def _bundles(shares: Sequence[tuple[int, int, int]], sizes: Sequence[int]) -> Iterator[list[tuple[int, int, int]]]:
    """Small tensors go to a thread together."""
    bundle: list[tuple[int, int, int]] = []
    gathered = 0
    for share, size in zip(shares, sizes, strict=True):
        bundle.append(share)
        gathered += size
        if gathered >= _SHARE // 2:
            yield bundle
            bundle, gathered = [], 0
    if bundle:
        yield bundle
