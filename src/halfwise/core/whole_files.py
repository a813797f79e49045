"""Files that appear under their names only when they are complete, all of them together."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from halfwise.core.errors import InputError, NoRoom
from halfwise.core.exhausted import FULL, no_temporary_room
from halfwise.core.file_lock import lock
from halfwise.core.json_text import read_json
from halfwise.core.real_path import real_path
from halfwise.core.removed_tree import remove_tree

__all__ = [
    "WholeFiles",
    "check_room",
    "check_temporary_room",
    "finish_interrupted",
    "is_special",
    "scratch_folder",
    "write_text",
]

_SCRATCH = ".halfwise-"
_LOCK = "lock"  # in a scratch folder: held by the process that writes there
_NAMES = "names.json"  # in a scratch folder: what was written whole, and the names that it is about to get
# What becomes of a name that no file can have, or not there.
_NO_NAME = frozenset(
    {
        errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.EINVAL,
        errno.ELOOP, errno.EXDEV, errno.EPERM,
    }
)  # fmt: skip


class WholeFiles:
    """A batch of files to write. They get their names when the block ends well; after an exception nothing is left.

    A process that is killed leaves the old files or the new ones: `finish_interrupted` gives names that are still
    owed. The folders given are made with them. A device or a pipe is written to as it is. An OSError of the block
    becomes an InputError which names the file that was written last.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = set(folders)  # to be made
        self._places: dict[Path, Path] = {}  # file -> where it is written meanwhile
        self._scratch: dict[Path, Path] = {}  # folder that is there -> a hidden one in it
        self._locks = ExitStack()
        self._dropped: list[Path] = []

    def place(self, path: Path) -> Path:
        """Where to write the file meanwhile. Its name is the same there."""
        if path not in self._places:
            self._places[path] = path  # which an error that comes now is to name
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            if not is_special(path):
                folder = self._beside(path) / str(len(self._places))
                folder.mkdir()
                self._places[path] = folder / path.name
        return self._places[path]

    def text(self, path: Path, text: str, errors: str = "strict") -> Path:
        """UTF-8 with newlines as they are; gives the place where it was written."""
        place = self.place(path)
        place.write_text(text, encoding="utf-8", errors=errors, newline="\n")
        return place

    def need(self, path: Path, size: int) -> None:
        """Refuse a file that its disk has no room for."""
        place = self.place(path)
        if place != path:
            check_room(path, place.parent, size)

    def folder(self, path: Path) -> None:
        """One more folder that is made for what is written into it."""
        self._folders.add(path)

    def drop(self, path: Path) -> None:
        """A file of before that goes in the end, unless this batch writes it."""
        self._dropped.append(path)

    def __enter__(self) -> WholeFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._name()
        except OSError as failed:
            error = failed
        finally:
            self._locks.close()
            for folder in self._scratch.values():
                _clear_away(folder)
        if isinstance(error, OSError):
            last = next(reversed(self._places), None)
            kind_of = NoRoom if error.errno in (*FULL, errno.EFBIG) else InputError
            raise kind_of(f"{last or error.filename} cannot be written: {error.strerror or error}") from error

    def _name(self) -> None:
        written = {path: place for path, place in self._places.items() if place.exists()}
        dropped = [path for path in self._dropped if path not in written]
        for path, place in written.items():
            if place != path:
                _sync(place)
        if len(written) + len(dropped) > 1 and self._scratch:
            self._promise(written, dropped)
        for path in dropped:
            path.unlink(missing_ok=True)
        for path, place in written.items():
            if place != path:
                if path.parent in self._folders:
                    path.parent.mkdir(parents=True, exist_ok=True)
                place.replace(path)

    def _promise(self, written: Mapping[Path, Path], dropped: Sequence[Path]) -> None:
        """Note in the first scratch folder what is to come, so that another process can finish it."""
        folder, scratch = next(iter(self._scratch.items()))
        names = {os.path.relpath(place, folder): os.path.relpath(path, folder) for path, place in written.items()}
        text = json.dumps({"names": names, "dropped": [os.path.relpath(path, folder) for path in dropped]})
        part = scratch / f"{_NAMES}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(scratch / _NAMES)

    def _beside(self, path: Path) -> Path:
        """A hidden folder; those that killed processes left where it comes are cleared away."""
        folder = path.parent
        if folder in self._folders:
            folder = next(each for each in path.absolute().parents if each.exists())
        if folder not in self._scratch:
            finish_interrupted(folder)
            if path.parent in self._folders:  # it may have been made since
                finish_interrupted(folder.parent)
            scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=folder))
            self._scratch[folder] = scratch
            with suppress(OSError):  # not every file system has locks
                lock(self._locks.enter_context((scratch / _LOCK).open("w", encoding="utf-8")))
        return self._scratch[folder]


@contextmanager
def scratch_folder(folder: Path | None) -> Iterator[Path]:
    """A hidden one in the folder, if that is there already; cleared away later where this process is killed."""
    place = folder if folder is not None and folder.is_dir() else None
    scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=place))
    with ExitStack() as held:
        held.callback(_clear_away, scratch)
        with suppress(OSError):  # not every file system has locks
            lock(held.enter_context((scratch / _LOCK).open("w", encoding="utf-8")))
        yield scratch


def check_room(path: Path, folder: Path, size: int) -> None:
    """Refuse what is too large for the disk that the folder is on, or for a file of this process."""
    if size > (largest := _largest_file()):
        raise NoRoom(
            f"{path} cannot be written: it takes {_bytes(size)}, and a file may have {_bytes(largest)} at most; raise "
            "the limit (ulimit -f)"
        )
    free = shutil.disk_usage(folder).free
    if size > free:
        raise NoRoom(
            f"{path} cannot be written: it takes {_bytes(size)}, and its disk has {_bytes(free)} left; "
            "make room or choose another folder"
        )


def check_temporary_room(folder: Path, size: int) -> None:
    """The same of a folder among the temporary files."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise NoRoom(no_temporary_room(f"it takes {_bytes(size)}, and {_bytes(free)} are left"))


def _largest_file() -> float:
    try:
        import resource
    except ImportError:
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit


def _bytes(count: float) -> str:
    unit, name = next(((u, n) for u, n in ((1e9, "GB"), (1e6, "MB")) if count >= u), (1e3, "kB"))
    return f"{count / unit:.3g} {name}"


def finish_interrupted(folder: Path) -> None:
    """Give the files of a batch whose process was killed their names, and remove what was not written whole."""
    for scratch in folder.glob(f"{_SCRATCH}*-*"):
        if not scratch.is_dir() or scratch.is_symlink() or _is_used(scratch):
            continue
        try:
            promised = read_json(scratch / _NAMES)
            names, dropped = dict(promised["names"]), list(promised["dropped"])
            inside = all(_is_inside(folder, name) for name in (*names, *names.values(), *dropped))
            inside = inside and all(_SCRATCH in place for place in names)
        except (OSError, ValueError, KeyError, TypeError, InputError):
            inside = False
        if inside:
            _keep_promise(folder, names, dropped)
        _clear_away(scratch)


def _keep_promise(folder: Path, names: Mapping[str, str], dropped: Sequence[str]) -> None:
    for name in dropped:
        with _where_there_is_none():
            (folder / name).unlink()
    for place, name in names.items():
        with _where_there_is_none():  # it has its name already, or the note is a stranger's
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).replace(folder / name)


@contextmanager
def _where_there_is_none() -> Iterator[None]:
    """No file, or no such name for one: nothing is owed. A disk that fails is another matter."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_NAME:
            raise


def _clear_away(scratch: Path) -> None:
    """The lock goes last: without it the process's number counts, and in a container the next process has the same."""
    with suppress(OSError):
        for each in [each for each in scratch.iterdir() if each.name != _LOCK]:
            if each.is_dir() and not each.is_symlink():
                remove_tree(each)
            else:
                each.unlink()
    remove_tree(scratch)


def _sync(path: Path) -> None:
    """To the disk, before a name says that it is there."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _is_used(scratch: Path) -> bool:
    """Numbers of processes are used again, and differ between containers: the lock counts where there is one."""
    try:
        with (scratch / _LOCK).open("r+", encoding="utf-8") as file:
            return not lock(file)
    except OSError:
        return _runs(scratch.name.split("-")[1])


def _runs(process: str) -> bool:
    if sys.platform == "win32" or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _is_inside(folder: Path, name: object) -> bool:
    """Whether a name stays within the folder, links followed: the note may be a stranger's."""
    if not isinstance(name, str) or "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        return False
    os.fsencode(name)
    return real_path((folder / name).parent).is_relative_to(real_path(folder))


def write_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write the file whole, with the folder that it is to lie in."""
    with WholeFiles(path.parent) as files:
        files.text(path, text, errors)


def is_special(path: Path) -> bool:
    """A device or a pipe, which has no place for a file beside it."""
    return path.exists() and not path.is_file() and not path.is_dir()
