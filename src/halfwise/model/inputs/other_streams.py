"""Other streams like those given: their tokens joined from two pieces, their other numbers a little away."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.model.inputs.rollout import Trajectory
from halfwise.model.inputs.samples import content_of
from halfwise.model.inputs.spliced import counts_on
from halfwise.model.inputs.synthetic import vary

__all__ = ["other_streams"]

Array = NDArray[Any]


def other_streams(
    given: Sequence[Trajectory], tokens: Collection[str], count: int, *, rng: np.random.Generator
) -> Iterator[list[dict[str, Array]]]:
    """The steps of up to `count` streams, none of which is one of those given, with their first states.

    `tokens` are inputs of whole numbers that pick entries of a table. What such an input takes in a row of steps is
    the text that pieces are taken from; one that counts on from step to step, as a position does, stays.
    """
    states = given[0].rollout.states
    texts = {name: text for name in tokens if name not in states and (text := _text(given, name)) is not None}
    known = {_content(each.steps, states) for each in given}
    for index in range(count):
        source = given[index % len(given)]
        made = [{**step, **vary(_left(step, states), rng=rng)} for step in source.steps]
        starts = rng.uniform(size=3)
        for name, text in texts.items():
            lengths = [np.shape(step[name])[-1] for step in source.steps]
            pieces = np.split(_joined(text, sum(lengths), starts), np.cumsum(lengths)[:-1], axis=-1)
            made = [{**step, name: piece} for step, piece in zip(made, pieces, strict=True)]
        content = _content(made, states)
        if content not in known:
            known.add(content)
            yield made


def _left(step: Mapping[str, Array], states: Collection[str]) -> dict[str, Array]:
    return {name: held for name, held in step.items() if name not in states}


def _content(steps: Sequence[Mapping[str, Array]], states: Collection[str]) -> tuple[bytes, ...]:
    return tuple(content_of(_left(step, states)) for step in steps)


def _text(given: Sequence[Trajectory], name: str) -> Array | None:
    """What all streams take of it in a row; None where they do not fit, and where it only counts."""
    arrays = [[np.asarray(step[name]) for step in each.steps] for each in given if name in each]
    flat = [array for each in arrays for array in each]
    if not flat or min(array.ndim for array in flat) < 1 or len({array.shape[:-1] for array in flat}) > 1:
        return None
    rows = [np.concatenate(each, axis=-1) for each in arrays]
    return None if all(map(counts_on, rows)) else np.concatenate(rows, axis=-1)


def _joined(text: Array, length: int, starts: NDArray[np.float64]) -> Array:
    """So many tokens: those from one place in the text on, and from somewhere among them those from another place."""
    size = text.shape[-1]
    cut = 1 + int(starts[2] * (length - 1))
    places = np.arange(length) + np.where(np.arange(length) < cut, int(starts[0] * size), int(starts[1] * size) - cut)
    return np.asarray(np.take(text, places % size, axis=-1))
