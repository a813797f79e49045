"""Opens a file that a user named, which may be a pipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

__all__ = ["opened"]


def opened(path: Path) -> IO[bytes]:
    """To read it. A pipe that nobody writes to is empty: who opens it as a file waits until somebody does."""
    if not hasattr(os, "O_NONBLOCK"):
        return path.open("rb")
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(file, True)
    return os.fdopen(file, "rb")
