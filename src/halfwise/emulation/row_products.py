"""One product for the rows of several inputs, so that the runtime orders its weight once.

It gives the same bits, but for a single row, which has a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["results_of_rows", "rows_of", "shape_of"]

Array = NDArray[Any]

AT_ONCE_BYTES = 1 << 26  # that one product of the rows of several inputs makes


def shape_of(array: Any) -> tuple[int, ...]:
    """Of an array here or on a GPU; empty where it is neither."""
    shape = getattr(array, "shape", ())
    return tuple(shape() if callable(shape) else shape)


def rows_of(arrays: Sequence[Any], width: int) -> list[Array] | None:
    """Arrays of any number of dimensions as rows of so many values; None where one of them is none."""
    if not all(map(_has_rows, arrays)) or any(array.shape[-1] != width for array in arrays):
        return None
    return [array.reshape(-1, width) for array in arrays]


def results_of_rows(
    rows: Sequence[Array], columns: int, tables: Iterable[Any], run: Callable[[Array, Any], Array]
) -> list[Array]:
    """What `run` makes of each input's rows and a table, which comes in parts that have `columns` together."""
    several = [index for index, each in enumerate(rows) if len(each) > 1]
    groups = [*_groups(several, rows, 4 * columns), *([index] for index, each in enumerate(rows) if len(each) == 1)]
    together = [np.concatenate([rows[index] for index in group]) for group in groups]
    parts: list[list[Array]] = [[] for _ in groups]
    for table in tables:
        for made, each in zip(parts, together, strict=True):
            made.append(run(each, table))
    found: dict[int, Array] = {}
    for group, made in zip(groups, parts, strict=True):
        whole = made[0] if len(made) == 1 else np.concatenate(made, axis=1)
        ends = np.cumsum([len(rows[index]) for index in group])[:-1]
        found.update(zip(group, np.split(whole, ends), strict=True))
    return [found[index] for index in range(len(rows))]


def _has_rows(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.float32 and array.ndim > 1 and array.size > 0


def _groups(inputs: Sequence[int], rows: Sequence[Array], row_bytes: int) -> Iterator[list[int]]:
    """Inputs in a row whose results are no larger than `AT_ONCE_BYTES`."""
    group, size = list[int](), 0
    for index in inputs:
        made = len(rows[index]) * row_bytes
        if group and size + made > AT_ONCE_BYTES:
            yield group
            group, size = [], 0
        group.append(index)
        size += made
    if group:
        yield group
