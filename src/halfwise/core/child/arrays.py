"""Arrays by name in an .npz file, for any names, without pickle; sequences of arrays and None among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import tensors_in
from halfwise.core.set_aside import set_aside
from halfwise.core.whole_files import check_temporary_room

__all__ = ["Arrays", "read_arrays", "write_arrays"]

_ONE, _NOTHING = -1, -2  # in the place of a sequence's length

_REGISTERED = 2  # what `isbuiltin` says of a type that another package brings, such as BF16

Arrays = Mapping[str, NDArray[Any]]


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Temporary. Strings come back as objects; types that NumPy's files do not know, such as BF16, as float32."""
    stored = {f"a{index}": _storable(array) for index, array in enumerate(tensors_in(arrays.values()))}
    lengths = [len(held) if isinstance(held, list) else _NOTHING if held is None else _ONE for held in arrays.values()]
    names = np.array(list(arrays), dtype=str)
    check_temporary_room(path.parent, sum(array.nbytes for array in stored.values()))
    np.savez(path, names=names, lengths=np.array(lengths, dtype=np.int64), **stored)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as stored:
        names = [str(name) for name in stored["names"]]
        lengths = [int(length) for length in stored["lengths"]]
        flat = (_read(stored[f"a{index}"]) for index in range(len(stored.files) - 2))
        return set_aside({name: _held(length, flat) for name, length in zip(names, lengths, strict=True)})


def _held(length: int, flat: Iterator[NDArray[Any]]) -> Any:
    if length == _NOTHING:
        return None
    return next(flat) if length == _ONE else list(islice(flat, length))


def _read(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(object) if array.dtype.kind == "U" else array


def _storable(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.astype(np.float32) if array.dtype.isbuiltin == _REGISTERED else array
