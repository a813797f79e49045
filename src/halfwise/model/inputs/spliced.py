"""Inputs of whole numbers (tokens, edges, masks) that begin as one of those given and go on as another."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["counts_on", "spliced"]

Array = NDArray[Any]
Arrays = Mapping[str, Array]


def spliced(
    feed: Arrays, others: Sequence[Arrays], *, rng: np.random.Generator, tokens: Collection[str] = ()
) -> dict[str, Array]:
    """The same feed, whose whole numbers go on with those of one of the others, all from the same share of the way.

    Floats stay. So does what has one entry in its last dimension. Where no other has the same shapes, only `tokens`,
    which pick entries of a table, go on with those of a shorter or longer one, read again from its start.
    """
    names = [name for name, held in feed.items() if _runs_on(held)]
    alike = [other for other in others if all(n in other and np.shape(other[n]) == feed[n].shape for n in names)]
    if not alike:
        names = [name for name in names if name in tokens and not counts_on(feed[name])]
        alike = [other for other in others if all(n in other and _goes_on(feed[n], other[n]) for n in names)]
    if not names or not alike:
        return dict(feed)
    other, place = alike[int(rng.integers(len(alike)))], rng.uniform()
    return {**feed, **{name: _joined(feed[name], other[name], place) for name in names}}


def counts_on(row: Array) -> bool:
    """Whether each entry is as far from the one before, as positions are; entries that are all the same are not."""
    steps = np.diff(row, axis=-1)
    return steps.size > 0 and bool((steps == steps.flat[0]).all()) and bool(steps.flat[0])


def _runs_on(held: object) -> bool:
    return isinstance(held, np.ndarray) and held.dtype.kind in "iub" and held.ndim > 0 and held.shape[-1] > 1


def _goes_on(first: Array, second: Array) -> bool:
    return second.ndim == first.ndim and second.shape[:-1] == first.shape[:-1] and second.shape[-1] > 0


def _joined(first: Array, second: Array, place: float) -> Array:
    cut = 1 + int(place * (first.shape[-1] - 1))
    places = np.arange(cut, first.shape[-1]) % second.shape[-1]
    return np.concatenate([first[..., :cut], np.take(second, places, axis=-1)], axis=-1)
