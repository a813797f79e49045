"""Folders for what passes between a process and its children; those of killed processes are cleared away."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import TracebackType

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
        self._folder = TemporaryDirectory(prefix=_PREFIX)
        self.path = Path(self._folder.name)
        self._lock = (self.path / _LOCK).open("w", encoding="utf-8")
        with suppress(OSError):  # not every file system has locks
            lock(self._lock)

    def cleanup(self) -> None:
        self._folder.cleanup()
        self._lock.close()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()


@cache
def _clear_left() -> None:
    """Once in a process."""
    for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is another user's, or gone
            if not folder.is_symlink() and folder.is_dir():
                _clear_unless_held(folder)


def _clear_unless_held(folder: Path) -> None:
    with (folder / _LOCK).open("r+", encoding="utf-8") as file:
        if lock(file):
            remove_tree(folder)
