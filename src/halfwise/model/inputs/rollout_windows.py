"""A stream of samples cut into parts of so many steps, each of which may start from a state that is left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError

__all__ = ["windows"]

Arrays = Mapping[str, NDArray[Any]]


def windows(frames: Sequence[Arrays], steps: int, states: Collection[str]) -> list[list[Arrays]]:
    """So many frames in a row, one window behind the other; of a stream too short for two, two that go round.

    Where a mask grows with a cache that starts empty, a window starts where its stream does, and does not go round.
    """
    growing = _growing(frames, states)
    if growing:
        return [list(frames[start : start + steps]) for start in _starts(frames, steps, growing)]
    starts = [*range(0, len(frames) - steps + 1, steps)]
    if len(starts) < 2:
        starts = [0, len(frames) // 2] if len(frames) > 1 else [0]
    return [[frames[(start + step) % len(frames)] for step in range(steps)] for start in starts]


def _growing(frames: Sequence[Arrays], states: Collection[str]) -> list[str]:
    """The inputs of changing size beside caches that start empty in every frame."""
    if not any(all(np.size(frame[name]) == 0 for frame in frames) for name in states):
        return []
    others = [name for name in frames[0] if name not in states]
    return [name for name in others if len({np.size(frame[name]) for frame in frames}) > 1]


def _starts(frames: Sequence[Arrays], steps: int, growing: Sequence[str]) -> list[int]:
    streams = list(_streams([max(np.size(frame[name]) for name in growing) for frame in frames]))
    found = [start for start, end in streams if end - start >= steps]
    if not found:
        longest = max(end - start for start, end in streams)
        raise InputError(
            f"--rollout {steps}: {growing[-1]!r} grows with the cache, and the longest stream in the samples has "
            f"{longest} of these steps; give a smaller number, or longer streams"
        )
    return found


def _streams(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """From where to where the length grows with each frame."""
    start = 0
    for index in range(1, len(lengths) + 1):
        if index == len(lengths) or lengths[index] <= lengths[index - 1]:
            yield start, index
            start = index
