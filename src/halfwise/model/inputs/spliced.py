"""Inputs of whole numbers (tokens, edges, masks) that begin as one of those given and go on as another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["spliced"]

Arrays = Mapping[str, NDArray[Any]]


def spliced(feed: Arrays, others: Sequence[Arrays], *, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """The same feed, whose whole numbers go on with those of one of the others, all from the same share of the way.

    Floats stay. So does all where no other has the same shapes, and what has one entry in its last dimension.
    """
    names = [name for name, held in feed.items() if _runs_on(held)]
    alike = [other for other in others if all(n in other and np.shape(other[n]) == feed[n].shape for n in names)]
    if not names or not alike:
        return dict(feed)
    other, place = alike[int(rng.integers(len(alike)))], rng.uniform()
    return {**feed, **{name: _joined(feed[name], other[name], place) for name in names}}


def _runs_on(held: object) -> bool:
    return isinstance(held, np.ndarray) and held.dtype.kind in "iub" and held.ndim > 0 and held.shape[-1] > 1


def _joined(first: NDArray[Any], second: NDArray[Any], place: float) -> NDArray[Any]:
    cut = 1 + int(place * (first.shape[-1] - 1))
    return np.concatenate([first[..., :cut], second[..., cut:]], axis=-1)
