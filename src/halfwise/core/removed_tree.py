"""Removes a folder that a stranger may have put something into."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

__all__ = ["remove_tree"]


def remove_tree(folder: Path) -> None:
    """As far as it goes: what is deeper than Python follows stays, and so does what is none. A pipe would wait."""
    if folder.is_dir() and not folder.is_symlink():
        with suppress(RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
