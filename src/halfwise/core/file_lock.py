"""A lock on an open file, of which the system lets go when the process ends, however it ends."""

from __future__ import annotations

import sys
from typing import IO

__all__ = ["lock"]


def lock(file: IO[str]) -> bool:
    """Whether nobody else has it: it is this process's until the file is closed."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(1 << 20)  # what is locked cannot be read
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
