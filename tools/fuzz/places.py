"""What may stand where a file of halfwise's own is expected: links, folders, pipes, files without an end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

__all__ = ["OTHER", "PLACE_MUTATIONS"]

OTHER = "mine.txt"  # what links lead to
_LARGE = 1 << 24


def _link(folder: Path, path: Path, random: Random) -> None:
    target = random.choice((OTHER, "nowhere", path.name, "/dev/zero", "/dev/null", "..", "/"))
    path.unlink()
    if not (folder / OTHER).exists():
        (folder / OTHER).write_text("mine")
    path.symlink_to(folder / OTHER if target == OTHER else target)


def _hard_link(folder: Path, path: Path, random: Random) -> None:
    os.link(path, folder / OTHER)


def _folder(folder: Path, path: Path, random: Random) -> None:
    small = path.is_file() and not path.is_symlink() and path.stat().st_size < _LARGE
    content = path.read_bytes() if small else b""
    path.unlink()
    path.mkdir()
    if random.random() < 0.5:
        (path / path.name).write_bytes(content)


def _pipe(folder: Path, path: Path, random: Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _gone(folder: Path, path: Path, random: Random) -> None:
    path.unlink()


def _without_end(folder: Path, path: Path, random: Random) -> None:
    """Zeros, of which the disk holds none."""
    with path.open("r+b") as file:
        file.truncate(random.choice((1 << 31, 1 << 40)))


def _above(folder: Path, path: Path, random: Random) -> None:
    """Its folder is a link to another one."""
    if path.parent != folder:
        path.parent.rename(folder / "elsewhere")
        path.parent.symlink_to(folder / "elsewhere")


PLACE_MUTATIONS: dict[str, Callable[[Path, Path, Random], None]] = {
    f"place{change.__name__}": change for change in (_link, _hard_link, _folder, _pipe, _gone, _without_end, _above)
}
