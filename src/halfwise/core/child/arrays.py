"""Arrays by name in an .npz file, for any names, without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "read_arrays", "write_arrays"]

_REGISTERED = 2  # what `isbuiltin` says of a type that another package brings, such as BF16

Arrays = Mapping[str, NDArray[Any]]


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Strings come back as objects; types that NumPy's files do not know, such as BF16, as float32."""
    stored = {f"a{index}": _storable(array) for index, array in enumerate(arrays.values())}
    np.savez(path, names=np.array(list(arrays), dtype=str), **stored)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as stored:
        names = [str(name) for name in stored["names"]]
        arrays = [stored[f"a{index}"] for index in range(len(names))]
    return {
        name: array.astype(object) if array.dtype.kind == "U" else array
        for name, array in zip(names, arrays, strict=True)
    }


def _storable(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.astype(np.float32) if array.dtype.isbuiltin == _REGISTERED else array
