"""Writes what was asked for beside the screen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.real_path import real_path
from halfwise.core.whole_files import is_special, write_text

__all__ = ["check_writable", "write"]


def check_writable(*paths: Path | None, reads: Iterable[Path | None] = ()) -> None:
    """Refuse before the work what could not be written after it, and what would take the place of a file that is read
    or written under the same name."""
    taken = {real_path(path): "it is read here" for path in reads if path is not None}
    for path in paths:
        if path is None or is_special(path):
            continue
        folder = next(each for each in path.absolute().parents if os.path.lexists(each))
        why = "it is a folder" if path.is_dir() else taken.get(real_path(path), "")
        if not why and (not folder.is_dir() or not os.access(folder, os.W_OK)):
            why = f"{folder} is no folder that can be written to"
        if why:
            raise InputError(f"{path} cannot be written: {why}")
        taken[real_path(path)] = "two outputs have this name"


def write(path: Path, text: str) -> None:
    write_text(path, text, errors="backslashreplace")
