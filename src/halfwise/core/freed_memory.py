"""Gives memory back to the system that was freed: the C library keeps it, cut into pieces by what still lives."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["Freed", "give_back_memory", "one_heap", "own_bytes"]

_M_ARENA_MAX = -8  # of glibc's malloc.h
_LEAST = 1 << 24  # bytes that are worth asking
_TIMES = 16  # what came back is slow to take again: so much more is freed before the next time


class Freed:
    """Counts the bytes of tensors that are freed. The more a process could give back last time, the later it does so
    again: most of it is soon taken anew."""

    def __init__(self) -> None:
        self._bytes, self._enough = 0, _LEAST

    def count(self, freed: int) -> None:
        self._bytes += freed
        if self._bytes > self._enough:
            before = own_bytes()
            give_back_memory()
            self._bytes, self._enough = 0, max(_TIMES * (before - own_bytes()), _LEAST)


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


def own_bytes() -> int:
    """Resident memory of this process without mapped files; 0 where the system does not tell."""
    try:
        resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
