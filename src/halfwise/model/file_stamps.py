"""Whether the files that weights stay in are still the ones that were opened: they are read as long as a job lasts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from halfwise.core.errors import InputError

__all__ = ["FileStamps"]

_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class FileStamps:
    """Node, size and time of each, as it was first seen."""

    stamps: tuple[tuple[Path, _Stamp], ...] = ()

    @staticmethod
    def of(files: Iterable[Path]) -> FileStamps:
        return FileStamps(tuple((file, _stamp(file)) for file in files))

    def with_more(self, others: FileStamps) -> FileStamps:
        return FileStamps((*others.stamps, *self.stamps))

    def check(self) -> None:
        for file, seen in self.stamps:
            if not file.exists() or _stamp(file) != seen:
                raise InputError(f"{file} was changed while it was read; run the command again")


def _stamp(file: Path) -> _Stamp:
    seen = file.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
