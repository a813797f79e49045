"""Folders for what passes between a process and its children; those of killed processes are cleared away."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from types import TracebackType
from typing import IO

from halfwise.core.file_lock import lock
from halfwise.core.removed_tree import remove_tree

__all__ = ["LOG", "ChildFolder"]

LOG = "log"  # in such a folder: what the child prints
_LOCK = "lock"  # in it, too: held by the process that made it
_PREFIX = "halfwise-child-"


class ChildFolder:
    """Among the temporary files, until it is cleaned up or the process ends."""

    def __init__(self) -> None:
        _clear_left()
        self.path, file = _held()
        self._end = weakref.finalize(self, _ended, self.path, file, os.getpid())

    def cleanup(self) -> None:
        self._end()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()


def _ended(folder: Path, file: IO[str], maker: int) -> None:
    """By the process that made it: a fork of that has a copy of all of this, and may end first."""
    file.close()  # first: on Windows no open file can be removed
    if os.getpid() == maker:
        remove_tree(folder)


def _held() -> tuple[Path, IO[str]]:
    """A folder and its lock. One that another process takes for left, as it has no lock yet, is left to that."""
    while True:
        folder = Path(mkdtemp(prefix=_PREFIX))
        path = folder / _LOCK
        file = path.open("w", encoding="utf-8")
        if _is_ours(file) and path.exists():
            return folder, file
        file.close()
        remove_tree(folder)


def _is_ours(file: IO[str]) -> bool:
    try:
        return lock(file)
    except OSError:  # not every file system has locks: nothing is cleared away there
        return True


@cache
def _clear_left() -> None:
    """Once in a process."""
    for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is another user's, or gone
            if not folder.is_symlink():
                _clear_unless_held(folder)


def _clear_unless_held(folder: Path) -> None:
    """While the lock is held, so that nobody begins to use it."""
    with (folder / _LOCK).open("r+", encoding="utf-8") as file:
        if lock(file):
            remove_tree(folder)
