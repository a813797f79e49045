"""Opens files that may not be what they look like: one that a user named, and our own in a stranger's folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from halfwise.core.errors import InputError

__all__ = ["check_own", "is_own", "opened"]


def opened(path: Path) -> IO[bytes]:
    """To read it. A pipe that nobody writes to is empty: who opens it as a file waits until somebody does."""
    if not hasattr(os, "O_NONBLOCK"):
        return path.open("rb")
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(file, True)
    return os.fdopen(file, "rb")


def is_own(path: Path) -> bool:
    """Whether a file of ours is there, or nothing: a link leads out of its folder."""
    try:
        there = path.lstat()
    except OSError:
        return True
    return stat.S_ISREG(there.st_mode) and there.st_nlink == 1


def check_own(path: Path) -> None:
    """Refuse to write into what somebody put in the place of a file of ours."""
    if not is_own(path):
        raise InputError(f"{path} is a link to another file, or none: remove it")
