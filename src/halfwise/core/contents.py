"""The tensors of an input or output: it is one, a sequence of them, or an optional that may hold nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["changed", "layout", "pieces", "tensors_in"]

_PIECE = 1 << 16  # elements, for which temporary arrays stay in the processor's cache


def tensors_in(outputs: Iterable[Any]) -> list[NDArray[Any]]:
    """All of them, in their order."""
    found: list[NDArray[Any]] = []
    for output in outputs:
        if isinstance(output, list):
            found += tensors_in(output)
        elif output is not None:
            found.append(np.asarray(output))
    return found


def pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """All of its elements, one dimension of a few at a time, in their order; they are looked at, not kept."""
    yield from np.nditer(array, flags=["external_loop", "buffered", "zerosize_ok"], order="C", buffersize=_PIECE)


def layout(output: Any) -> Any:
    """The shape of a tensor, those of a sequence, or None of nothing: what has to be the same to compare values."""
    return list(map(layout, output)) if isinstance(output, list) else None if output is None else np.shape(output)


def changed(held: Any, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    """The same with each of its tensors changed."""
    if isinstance(held, list):
        return [changed(each, change) for each in held]
    return None if held is None else change(np.asarray(held))
