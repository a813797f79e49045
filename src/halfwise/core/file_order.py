"""The order in which the files of a folder are read."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["by_number"]


def by_number(path: Path) -> list[int | str]:
    """A key to sort files by, of their names alone: "2" before "10"."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]
