"""Files that appear under their names only when they are complete, all of them together."""

from __future__ import annotations

import shutil
import tempfile
from errno import EISDIR
from pathlib import Path
from types import TracebackType

from halfwise.core.errors import InputError

__all__ = ["WholeFiles", "check_room", "is_special", "write_text"]


class WholeFiles:
    """A batch of files to write. They get their names when the block ends well; after an exception nothing is left.

    The folders given are made with them. A device or a pipe is written to as it is. An OSError of the block becomes an
    InputError which names the file that was written last.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = set(folders)  # to be made
        self._places: dict[Path, Path] = {}  # file -> where it is written meanwhile
        self._scratch: dict[Path, Path] = {}  # folder that is there -> a hidden one in it
        self._dropped: list[Path] = []

    def place(self, path: Path) -> Path:
        """Where to write the file meanwhile. Its name is the same there."""
        if path not in self._places:
            self._places[path] = path  # which an error that comes now is to name
            if path.is_dir():
                raise IsADirectoryError(EISDIR, "it is a folder")
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
            for folder in self._scratch.values():
                shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            last = next(reversed(self._places), None)
            raise InputError(f"{last or error.filename} cannot be written: {error.strerror or error}") from error

    def _name(self) -> None:
        written = {path: place for path, place in self._places.items() if place.exists()}
        for path in self._dropped:
            if path not in written:
                path.unlink(missing_ok=True)
        for path, place in written.items():
            if place != path:
                if path.parent in self._folders:
                    path.parent.mkdir(parents=True, exist_ok=True)
                place.replace(path)

    def _beside(self, path: Path) -> Path:
        folder = path.parent
        if folder in self._folders:
            folder = next(each for each in path.absolute().parents if each.exists())
        if folder not in self._scratch:
            self._scratch[folder] = Path(tempfile.mkdtemp(prefix=".halfwise-", dir=folder))
        return self._scratch[folder]


def check_room(path: Path, folder: Path, size: int) -> None:
    """Refuse what is too large for the disk that the folder is on."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"{path} cannot be written: it takes {_bytes(size)}, and its disk has {_bytes(free)} left; "
            "make room or choose another folder"
        )


def _bytes(count: int) -> str:
    unit, name = next(((u, n) for u, n in ((1e9, "GB"), (1e6, "MB")) if count >= u), (1e3, "kB"))
    return f"{count / unit:.3g} {name}"


def write_text(path: Path, text: str, errors: str = "strict") -> None:
    with WholeFiles() as files:
        files.text(path, text, errors)


def is_special(path: Path) -> bool:
    """A device or a pipe, which has no place for a file beside it."""
    return path.exists() and not path.is_file() and not path.is_dir()
