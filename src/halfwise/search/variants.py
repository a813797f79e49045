"""Inputs away from those given, where a few inputs cannot carry a promise.

A little away: a softmax between near equals, a selection or a threshold is right on most inputs and wrong on some. What
is measured on a few says nothing of that; a step of one part in a hundred away, the same inputs meet other near ties.
As far away as others may be: louder and quieter than any given, by as much as those given tell of others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.metrics import is_float
from halfwise.model.inputs.as_taken import as_taken
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory
from halfwise.model.inputs.samples import Samples, content_of
from halfwise.model.inputs.spliced import spliced
from halfwise.model.inputs.synthetic import resized, vary
from halfwise.model.model import Model
from halfwise.search.jumps import jumping
from halfwise.search.references import References
from halfwise.search.unseen_bound import bound_for_unseen, spread

__all__ = ["DOUBT", "JUDGED", "in_order", "of_few", "of_other_size", "varied", "worth_variants"]

SAME = 1e-6  # relative difference up to which two inputs are as loud
DOUBT = 0.25  # of the tolerance, expected of inputs not given: below it, no more of them are looked at
_FAR = 1 << 20  # beyond the numbers of other variants
JUDGED = 12  # inputs that a promise rests on, those given among them


def worth_variants(model: Model, ratios: Sequence[float]) -> bool:
    """Whether other inputs may come near the tolerance, or a choice between near equals decides."""
    return bound_for_unseen(ratios, most=math.inf) > DOUBT or any(jumping(model))


def of_few(samples: Samples, references: References) -> tuple[Feed, ...]:
    """As many as are missing to `JUDGED`; none of inputs that nobody gave, and of streams."""
    given = in_order(samples)
    if samples.origin != "given" or any(isinstance(feed, Trajectory) for feed in given):
        return ()
    missing = range(max(JUDGED - len(given), 0))
    return varied([given[index % len(given)] for index in missing], given, references, seed=len(given))


def in_order(samples: Samples) -> tuple[Feed, ...]:
    """The same variants get the same numbers, however the samples are split by now: answers are known by number."""
    return tuple(sorted(samples.all, key=lambda feed: (content_of(feed), feed.id)))


def of_other_size(samples: Samples, references: References, ids: Collection[str] = ()) -> tuple[Feed, ...]:
    """The loudest input made louder and the quietest made quieter, as far as another may be; none of streams. Numbers
    that pick entries of a table, `ids`, are not loud."""
    given = samples.all
    if samples.origin != "given" or len(given) < 2 or any(isinstance(feed, Trajectory) for feed in given):
        return ()
    names = [name for name in given[0] if name not in ids and all(name in feed for feed in given)]
    sizes = {name: [_size(feed[name]) for feed in given] for name in names}
    moving = {name: each for name, each in sizes.items() if min(each) > 0 and max(each) > min(each) * (1 + SAME)}
    if not moving:
        return ()
    whole = [math.fsum(math.log(each[index]) for each in moving.values()) for index in range(len(given))]
    loudest, quietest = (given[whole.index(pick(whole))] for pick in (max, min))
    limits = {name: _limits([feed[name] for feed in given]) for name in moving}
    louder = {name: spread(each) for name, each in moving.items()}
    quieter = {name: 1 / spread([1 / size for size in each]) for name, each in moving.items()}
    first, made = _FAR + max(feed.id for feed in given), list[Feed]()
    for feed, factors in ((loudest, louder), (quietest, quieter)):
        scaled = {name: resized(feed[name], factor, limits[name]) for name, factor in factors.items()}
        new = Feed(first + len(made), {**feed, **scaled})
        if content_of(new) != content_of(feed):
            made.append(new)
    return _running(made, references)


def _size(values: object) -> float:
    """The norm of a real tensor; 0 of anything else."""
    if not isinstance(values, np.ndarray) or not is_float(values.dtype):
        return 0.0
    finite = values[np.isfinite(values)].astype(np.float64)
    return float(np.sqrt(np.sum(np.square(finite))))


def _limits(arrays: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """The least and the largest value where two inputs or more share it: what such inputs are held to."""
    lows, highs = [float(each.min()) for each in arrays], [float(each.max()) for each in arrays]
    low, high = min(lows), max(highs)
    return (low if lows.count(low) > 1 else -math.inf), (high if highs.count(high) > 1 else math.inf)


def varied(sources: Sequence[Feed], known: tuple[Feed, ...], references: References, *, seed: int) -> tuple[Feed, ...]:
    """One of each source, where it differs and FP32 takes it. Tokens, which no small step changes, are joined with
    those of another input where a choice decides."""
    rng, first, made = np.random.default_rng(seed), 1 + max(feed.id for feed in known), list[Feed]()
    given = [feed for feed in known if feed.source is None] if any(jumping(references.model)) else []
    tokens = [spec.name for spec in references.model.inputs if spec.most > 1]
    for index, feed in enumerate(sources):
        others = [each for each in given if each.id != _origin(feed)]
        made.append(Feed(first + index, spliced(vary(feed, rng=rng), others, rng=rng, tokens=tokens), _origin(feed)))
    new = [each for each, feed in zip(made, sources, strict=True) if content_of(each) != content_of(feed)]
    return _running(new, references)


def _origin(feed: Feed) -> int:
    return feed.id if feed.source is None else feed.source


def _running(feeds: Sequence[Feed], references: References) -> tuple[Feed, ...]:
    """Those that FP32 takes of variants, whose values nobody gave. All at once first: of a large model each weight is
    read once for them."""
    feeds = [as_taken(feed, references.interface) for feed in feeds]
    try:
        references.of(feeds)
    except InputError:
        return tuple(each for feed in feeds for each in _running([feed], references)) if len(feeds) > 1 else ()
    return tuple(feeds)
