"""Writes what was asked for beside the screen."""

from __future__ import annotations

import os
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.whole_files import is_special, write_text

__all__ = ["check_writable", "write"]


def check_writable(*paths: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    for path in paths:
        if path is None or is_special(path):
            continue
        folder = path.absolute().parent
        if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            why = "it is a folder" if path.is_dir() else f"{folder} is no folder that can be written to"
            raise InputError(f"{path} cannot be written: {why}")


def write(path: Path, text: str) -> None:
    write_text(path, text, errors="backslashreplace")
