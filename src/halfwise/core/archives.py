"""Reads .npz files that a stranger wrote."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core import limits

__all__ = ["names_in_npz", "read_npz"]


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays by name; whatever a damaged file makes a reader raise, a ValueError of one that unpacks to too much.

    What is no archive is refused before NumPy sees it, which takes it for a pickle.
    """
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
        twice = [name for name, count in Counter(archive.namelist()).items() if count > 1]
    if size > limits.LARGEST_ARRAYS:
        raise ValueError(f"it unpacks to {size} bytes, and files are read up to {limits.LARGEST_ARRAYS}")
    if twice:
        raise ValueError(f"it holds {twice[0]!r} twice")
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def names_in_npz(path: Path) -> tuple[str, ...]:
    """The names of the arrays; none of what is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(name.removesuffix(".npy") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return ()
