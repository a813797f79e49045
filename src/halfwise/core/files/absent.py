"""A file that a user named and that is not there."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.nearest import nearest

__all__ = ["absent"]

_LOOKED_AT = 1000  # names in the folder


def absent(path: Path, what: str = "file") -> InputError:
    """What to raise: with names of the same folder that look like it."""
    try:
        names = sorted(each.name for each in islice(path.parent.iterdir(), _LOOKED_AT) if each != path)
    except OSError:
        names = []
    return InputError(f"{path}: there is no such {what}{nearest(path.name, names)}")
