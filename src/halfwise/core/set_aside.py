"""Large arrays that are kept long and read seldom: they lie in a file without a name, so that the system may take
their memory for something else."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from mmap import ACCESS_COPY, mmap
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import changed, tensors_in

__all__ = ["is_aside", "set_aside"]

Array = NDArray[Any]

LARGE = 1 << 22  # bytes from which an array is worth a file
_ROOM = 1 << 30  # bytes of the disk that are left to others
_ALIGNED = 64
_SHARE = 4  # of the files that a process may have open, one in so many
_USUAL = 256  # such files, where no limit is known

_files = WeakSet[mmap]()  # each has a handle


def set_aside(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same outputs; the large ones among them lie in one file, unless the disk or the handles of files are short.

    Small arrays stay as they are, and arrays of objects.
    """
    large = [array for array in tensors_in(outputs.values()) if _is_large(array)]
    aside = {id(array): there for array, there in zip(large, _written(large), strict=False)}
    if not aside:
        return dict(outputs)
    return {name: changed(held, lambda array: aside.get(id(array), array)) for name, held in outputs.items()}


def is_aside(array: Array) -> bool:
    return isinstance(array.base, mmap)


def _is_large(array: Array) -> bool:
    return array.nbytes >= LARGE and not array.dtype.hasobject and not is_aside(array)


def _written(arrays: Sequence[Array]) -> Iterator[Array]:
    """As many as there are, or none."""
    ends = list(accumulate(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays))
    if not arrays or len(_files) >= _most_files():
        return
    with suppress(OSError, ValueError), tempfile.TemporaryFile(prefix="halfwise-") as file:
        if shutil.disk_usage(tempfile.gettempdir()).free < ends[-1] + _ROOM:
            return
        for array, start in zip(arrays, (0, *ends), strict=False):
            file.seek(start)
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        file.flush()
        held = mmap(file.fileno(), 0, access=ACCESS_COPY)
        _files.add(held)
        yield from (np.ndarray(a.shape, a.dtype, held, start) for a, start in zip(arrays, (0, *ends), strict=False))


def _most_files() -> int:
    if sys.platform == "win32":
        return _USUAL
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _USUAL if most == resource.RLIM_INFINITY else most // _SHARE
