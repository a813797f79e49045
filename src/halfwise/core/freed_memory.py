"""Gives memory back to the system that was freed: the C library keeps it, cut into pieces by what still lives."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["Freed", "give_back_memory", "one_heap", "own_bytes"]

_M_ARENA_MAX = -8  # of glibc's malloc.h
_LEAST = 1 << 24  # bytes that are worth looking
_MORE = 1.5  # times the least that was held when all had been given back, and some
_SOME = 1 << 26
_TIMES = 3  # what came back is freed before it is asked for again


def give_back_memory() -> None:
    """Only glibc can be asked to; elsewhere nothing happens."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


class Freed:
    """Counts the bytes of tensors that are freed, and lets what nobody uses be given back where a process holds much
    more than it must; the less often, the more came back, for most of it is soon taken anew."""

    def __init__(self, give_back: Callable[[], None] = give_back_memory) -> None:
        self._give_back = give_back
        self._bytes, self._enough, self._must = 0, _LEAST, 0

    def count(self, freed: int) -> None:
        self._bytes += freed
        if self._bytes <= self._enough:
            return
        self._bytes, self._enough, before = 0, _LEAST, own_bytes()
        if before > _MORE * self._must + _SOME:
            self._give_back()
            after = own_bytes()
            self._must = min(self._must or after, after)
            self._enough = max(_TIMES * (before - after), _LEAST)


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
