"""Samples as a typed file takes them: rounded to the formats of its inputs, as there is no other way to feed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from halfwise.core.formats import Format, round_to
from halfwise.core.metrics import is_float
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory
from halfwise.model.inputs.samples import Samples

__all__ = ["as_taken", "samples_as_taken"]


def as_taken(feed: Feed, types: Mapping[str, Format]) -> Feed:
    """Values beyond a format stay as they are. Of a trajectory every step is rounded."""
    arrays = {name: _rounded(array, types.get(name)) for name, array in feed.items()}
    if isinstance(feed, Trajectory):
        return replace(feed, arrays=arrays, steps=tuple(as_taken(step, types) for step in feed.steps))
    return replace(feed, arrays=arrays)


def samples_as_taken(samples: Samples, types: Mapping[str, Format]) -> Samples:
    """The same samples where no type is narrow."""
    if not any(fmt.narrow for fmt in types.values()):
        return samples
    search, validation = (
        tuple(as_taken(feed, types) for feed in feeds) for feeds in (samples.search, samples.validation)
    )
    return replace(samples, search=search, validation=validation)


def _rounded(array: Any, fmt: Format | None) -> Any:
    if fmt is None or not fmt.narrow or not isinstance(array, np.ndarray) or not is_float(array.dtype):
        return array
    with np.errstate(over="ignore"):
        rounded = round_to(array, fmt)
    return np.where(np.isinf(rounded), array, rounded).astype(array.dtype)
