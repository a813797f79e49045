"""Holds a folder of results for one run at a time; the system lets go of it when the process ends, however it ends."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from halfwise.core.errors import InputError
from halfwise.core.file_lock import lock
from halfwise.core.opened import check_own
from halfwise.core.whole_files import finish_interrupted

__all__ = ["LOCK", "held", "locked"]

LOCK = ".halfwise-lock"
_MADE = "folders made: "
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_LONGEST = 1000  # of what a lock says


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Nobody else's while the block runs. The folder is made; where nothing was written into it, it goes again.

    What a run that was killed has left half-named is finished first. Folders that it made go with those of this run.
    """
    check_own(folder / LOCK)
    places = (folder, *folder.parents)
    made = [each for each in places if not each.exists()] or list(places[: _made_before(folder)])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = locked(folder / LOCK, "wait for it, or choose another folder with --out")
        file.write(f"{_MADE}{len(made)}\n")
        file.flush()
    except OSError as error:
        raise InputError(f"{folder} cannot be written to: {error.strerror or error}") from error
    try:
        _finish(folder)
        yield
    finally:
        with suppress(OSError):
            if sys.platform == "win32":  # an open file has to be closed before it goes
                file.close()
            (folder / LOCK).unlink(missing_ok=True)
            file.close()
        with suppress(OSError):  # one that is not empty stays
            for each in made:
                each.rmdir()


def _finish(folder: Path) -> None:
    try:
        finish_interrupted(folder)
    except OSError as error:
        told = f"{folder} holds results of an interrupted run, which cannot be given their names"
        raise InputError(f"{told}: {error.filename}: {error.strerror or error}") from error


def _made_before(folder: Path) -> int:
    """How many folders a run made, this one and its parents, that did not come to its end."""
    try:
        with (folder / LOCK).open(encoding="utf-8") as file:
            noted = file.read(_LONGEST).splitlines()[1]
        return int(noted.removeprefix(_MADE))
    except (OSError, ValueError, IndexError):
        return 0


def _free(file: IO[str]) -> bool:
    """Whether nobody else has it; where the file system has no locks, nobody knows, and the run goes on."""
    try:
        return lock(file)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return True


def locked(path: Path, advice: str) -> IO[str]:
    """The open file; whoever holds it has written into it who that is. A second holder is refused, with advice."""
    while True:
        check_own(path)
        file = path.open("a+", encoding="utf-8")
        if not _free(file):
            file.seek(0)
            holder = file.readline(200).strip() or "another process"
            file.close()
            raise InputError(f"{path.parent} is in use by {holder}; {advice}")
        # Who held it before may have removed the name in between.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        file.close()
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {now}\n")
        file.flush()
    except OSError:
        with suppress(OSError):
            path.unlink()
        with suppress(OSError):  # what could not be written is tried once more
            file.close()
        raise
    return file
