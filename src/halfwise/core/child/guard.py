"""What a child process does for itself: end with its parent, and stay within its memory."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["end_with_parent", "go_first", "limit_memory"]

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """On Linux the kernel ends this process when the thread that started it is gone."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def go_first() -> None:
    """When memory is out, the system ends this process before others."""
    if sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def limit_memory(size: int) -> None:
    """From now on this process, and each that it starts, gets no more than so many bytes of its own."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
