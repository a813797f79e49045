"""Gives memory back to the system that was freed: the C library keeps it, cut into pieces by what still lives."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

__all__ = ["give_back_memory"]


def give_back_memory() -> None:
    """Only glibc can be asked to; elsewhere nothing happens."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
