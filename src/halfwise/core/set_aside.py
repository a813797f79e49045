"""Large arrays that are kept long and read seldom: they lie in a file without a name, so that the system may take
their memory for something else."""

from __future__ import annotations

import errno
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from mmap import ACCESS_COPY, mmap
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import changed, tensors_in

__all__ = ["is_aside", "set_aside", "written_aside"]

Array = NDArray[Any]

LARGE = 1 << 22  # bytes from which an array is worth a file
_ROOM = 1 << 30  # bytes of the disk that are left to others
_ALIGNED = 64


def set_aside(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same outputs; the large ones among them lie in one file, unless a disk is full or files are few.

    Small arrays stay as they are, and arrays of objects.
    """
    large = [array for array in tensors_in(outputs.values()) if _is_large(array)]
    aside = list(_written(large)) if large else []
    if not aside:
        return dict(outputs)
    left = iter(aside)
    return {
        name: changed(held, lambda array: next(left) if _is_large(array) else array) for name, held in outputs.items()
    }


def written_aside(shape: Sequence[int], dtype: np.dtype[Any], pieces: Iterable[Array]) -> Array | None:
    """An array that lies in such a file, of pieces that are made one by one; None where a disk is full or files are
    few."""
    size = math.prod(shape) * dtype.itemsize
    with suppress(OSError, ValueError), _file_for(size) as file:
        for piece in pieces:
            file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
        file.flush()
        return np.ndarray(tuple(shape), dtype, mmap(file.fileno(), size, access=ACCESS_COPY))
    return None


def is_aside(array: Array) -> bool:
    """Whether it lies in a file already, as what was set aside and a weight do; a view of such an array, too."""
    base = array.base
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return isinstance(base, mmap)


def _is_large(array: Array) -> bool:
    return array.nbytes >= LARGE and not array.dtype.hasobject and not is_aside(array)


def _written(arrays: Sequence[Array]) -> Iterator[Array]:
    """As many as there are, or none."""
    starts = [0, *accumulate(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays)]
    with suppress(OSError, ValueError), _file_for(starts[-1]) as file:
        for array, start in zip(arrays, starts, strict=False):
            file.seek(start)
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        file.flush()
        held = mmap(file.fileno(), 0, access=ACCESS_COPY)
        yield from (np.ndarray(a.shape, a.dtype, held, start) for a, start in zip(arrays, starts, strict=False))


@contextmanager
def _file_for(size: int) -> Iterator[IO[bytes]]:
    """Without a name; OSError where a disk has no room for so many bytes, or files are few."""
    if shutil.disk_usage(tempfile.gettempdir()).free - _ROOM < size:
        raise OSError(errno.ENOSPC, "no room")
    with tempfile.TemporaryFile(prefix="halfwise-") as file:
        if not _leaves_files(file.fileno()):
            raise OSError(errno.EMFILE, "too few files")
        yield file


def _leaves_files(handle: int) -> bool:
    """Whether half of the files that may be open are left to others: a file gets the lowest number that is free."""
    if sys.platform == "win32":
        return True
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most == resource.RLIM_INFINITY or 2 * handle < most
