"""Gives memory back to the system that was freed: the C library keeps it, cut into pieces by what still lives."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

__all__ = ["give_back_memory", "one_heap"]

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
