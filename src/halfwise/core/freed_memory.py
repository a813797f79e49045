"""How the C library keeps memory: what was freed is given back to the system, and what is large lies in large pages."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

__all__ = ["give_back_memory", "large_pages", "one_heap"]

_TUNABLES = "GLIBC_TUNABLES"

_M_ARENA_MAX = -8  # of glibc's malloc.h


def give_back_memory() -> None:
    """Only glibc can be asked to; elsewhere nothing happens."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def one_heap() -> None:
    """All threads to come take memory from one heap, for a process that is ours alone: the end of a heap that threads
    have to themselves is not given back, and each new session of ONNX Runtime starts threads."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def large_pages() -> Mapping[str, str]:
    """An environment in which a program's heap asks the kernel for pages of 2 MB: it fills each as a whole, where 512
    small ones stop the program 512 times."""
    if sys.platform != "linux" or _TUNABLES in os.environ:
        return {}
    return {_TUNABLES: "glibc.malloc.hugetlb=1"}
