"""Splits the samples between search and validation by what the FP32 model answers to them, in whatever order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import pieces
from halfwise.model.inputs.samples import Samples, content_of

__all__ = ["median", "split"]

Array = NDArray[Any]


def split(samples: Samples, references: Sequence[Mapping[str, Array]]) -> Samples:
    """Give the search the samples whose FP32 outputs are smallest (the hardest, relatively) and largest.

    Which ones those are does not depend on the order in which they are given: of equals the content decides.
    """
    feeds = (*samples.search, *samples.validation)
    if samples.origin != "given" or len(feeds) < 2:
        return samples
    norms = np.array([[_norm(output) for output in reference.values()] for reference in references])
    typical = median(norms)
    relative = norms / np.where(typical > 0, typical, 1.0)
    order = sorted(range(len(feeds)), key=lambda i: (float(relative[i].min()), content_of(feeds[i])))
    wanted = len(samples.search)
    chosen = {order[0], order[-1]} if wanted > 1 else {order[0]}
    for index in order[2::2]:
        if len(chosen) < wanted:
            chosen.add(index)
    for index in order:
        if len(chosen) < wanted:
            chosen.add(index)
    return replace(
        samples,
        search=tuple(feeds[i] for i in range(len(feeds)) if i in chosen),
        validation=tuple(feeds[i] for i in range(len(feeds)) if i not in chosen),
    )


def median(rows: Array) -> Array:
    """As NumPy's, which loads masked arrays for it."""
    ordered, half = np.sort(rows, axis=0), len(rows) // 2
    return np.asarray(ordered[half] if len(rows) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _norm(array: Array) -> float:
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return 1.0
    return math.sqrt(math.fsum(map(_square, pieces(array))))


def _square(piece: Array) -> float:
    wide = piece[np.isfinite(piece)].astype(np.float64)
    return float(np.sum(wide * wide))  # a dot product's last bits depend on how many threads there are
