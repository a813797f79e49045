"""Writes what was asked for beside the screen."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from halfwise.errors import InputError

__all__ = ["write"]


def write(path: Path, text: str) -> None:
    """A file that appears under its name only when it is complete; a device or a pipe is written to as it is."""
    special = path.exists() and not path.is_file()
    part = path if special else path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        if not special:
            part.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        if not special:
            with suppress(OSError):
                part.unlink(missing_ok=True)
