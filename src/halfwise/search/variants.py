"""Inputs a little away from those given: other roundings and near ties, where a few inputs cannot carry a promise.

A softmax between near equals, a selection or a threshold is right on most inputs and wrong on some. What is measured on
a few says nothing of that; a step of one part in a hundred away, the same inputs meet other near ties.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halfwise.core.errors import InputError
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory
from halfwise.model.inputs.samples import Samples, content_of
from halfwise.model.inputs.synthetic import vary
from halfwise.model.model import Model
from halfwise.search.references import References

__all__ = ["chooses", "of_few", "varied"]

JUDGED = 12  # inputs that a promise rests on, those given among them
# Their results jump where a number crosses another.
_JUMPS = frozenset(
    "ArgMax ArgMin TopK NonMaxSuppression NonZero Unique Hardmax Floor Ceil Round Sign Mod Greater GreaterOrEqual Less "
    "LessOrEqual Equal".split()
)


def chooses(model: Model) -> bool:
    """Whether a comparison of computed numbers may decide between outputs that lie far apart."""
    return any(
        node.op_type in _JUMPS
        and not node.domain
        and any(v.dtype and v.dtype.is_floating_point() for v in node.inputs if v is not None)
        for node in model.nodes
    )


def of_few(samples: Samples, references: References) -> tuple[Feed, ...]:
    """As many as are missing to `JUDGED`; none of inputs that nobody gave, and of streams."""
    given = samples.all
    if samples.origin != "given" or any(isinstance(feed, Trajectory) for feed in given):
        return ()
    missing = range(max(JUDGED - len(given), 0))
    return varied([given[index % len(given)] for index in missing], given, references, seed=len(given))


def varied(sources: Sequence[Feed], known: tuple[Feed, ...], references: References, *, seed: int) -> tuple[Feed, ...]:
    """One of each source, where it differs and FP32 takes it."""
    rng, first = np.random.default_rng(seed), 1 + max(feed.id for feed in known)
    made = [Feed(first + index, vary(feed, rng=rng)) for index, feed in enumerate(sources)]
    return tuple(
        new
        for new, feed in zip(made, sources, strict=True)
        if content_of(new) != content_of(feed) and _runs(new, references)
    )


def _runs(feed: Feed, references: References) -> bool:
    """Whether FP32 takes a variant, whose values nobody gave."""
    try:
        references.of((feed,))
    except InputError:
        return False
    return True
