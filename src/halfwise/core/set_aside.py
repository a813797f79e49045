"""Large arrays that are kept long and read seldom: they lie in a file without a name, so that the system may take
their memory for something else."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from mmap import ACCESS_COPY, mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import changed

__all__ = ["all_set_aside", "is_aside", "set_aside"]

Array = NDArray[Any]

LARGE = 1 << 22  # bytes from which an array is worth a file
_ROOM = 1 << 30  # bytes of the disk that are left to others


def all_set_aside(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Each output, of sequences each tensor."""
    return {name: changed(held, set_aside) if _holds(held) else held for name, held in outputs.items()}


def set_aside(array: Array) -> Array:
    """The same values; the array itself where it is small, of objects, or where a disk is full or files are few."""
    if array.nbytes < LARGE or array.dtype.hasobject or is_aside(array):
        return array
    with suppress(OSError, ValueError), tempfile.TemporaryFile(prefix="halfwise-") as file:
        if _leaves_files(file.fileno()) and shutil.disk_usage(tempfile.gettempdir()).free > array.nbytes + _ROOM:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            file.flush()
            held = mmap(file.fileno(), 0, access=ACCESS_COPY)
            return np.ndarray(array.shape, array.dtype, held)
    return array


def is_aside(array: Array) -> bool:
    return isinstance(array.base, mmap)


def _leaves_files(handle: int) -> bool:
    """Whether half of the files that may be open are left to others: a map takes the lowest number that is free."""
    if sys.platform == "win32":
        return True
    import resource

    next_one = os.dup(handle)
    os.close(next_one)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most == resource.RLIM_INFINITY or 2 * next_one < most


def _holds(held: Any) -> bool:
    return isinstance(held, np.ndarray | list)
