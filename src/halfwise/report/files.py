"""Writes what was asked for beside the screen."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from halfwise.core.errors import InputError

__all__ = ["check_writable", "write"]


def check_writable(*paths: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    for path in paths:
        if path is None or _is_special(path):
            continue
        folder = path.absolute().parent
        if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            why = "it is a folder" if path.is_dir() else f"{folder} is no folder that can be written to"
            raise InputError(f"{path} cannot be written: {why}")


def write(path: Path, text: str) -> None:
    """A file that appears under its name only when it is complete; a device or a pipe is written to as it is."""
    special = _is_special(path)
    part = path if special else path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        if not special:
            part.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if not special:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """A device or a pipe, which has no place for a file beside it."""
    return path.exists() and not path.is_file() and not path.is_dir()
