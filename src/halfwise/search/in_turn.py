"""One question of many inputs, asked one after the other: the first that misses ends it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

from halfwise.model.inputs.feed import Feed
from halfwise.precision.assignment import Assignment
from halfwise.search.judge import Judge, Measured, unseen_bound

__all__ = ["InTurn"]


class InTurn:
    """Whether a decision keeps a `limit` on inputs, or is as good on them as the one `before` it; hard ones come first.

    `bound`: the same of what is to be expected of other inputs. Nothing is run before the first question.
    """

    def __init__(
        self,
        judge: Callable[[Sequence[Feed]], Judge],
        feeds: Callable[[], Sequence[Feed]],
        before: Assignment,
        limit: float,
        bound: float = math.inf,
    ) -> None:
        self._judge = judge
        self._made = feeds
        self._before = before
        self._least = limit, bound
        self._missed = dict[int, float]()

    def bears(self, decision: Assignment) -> bool:
        """False where there is no input to ask."""
        limit, bound = self._limits
        seen = list[Measured]()
        for feed in sorted(self._feeds, key=self._hardness, reverse=True):
            seen.append(self._judge([feed]).measure(decision))
            if not seen[-1].ratio <= limit:
                self._missed[feed.id] = seen[-1].ratio
                return False
        return bool(seen) and unseen_bound(seen) <= bound

    def _hardness(self, feed: Feed) -> float:
        return self._missed.get(feed.id, self._known[feed.id].ratio)

    @cached_property
    def _feeds(self) -> tuple[Feed, ...]:
        return tuple(self._made())

    @cached_property
    def _known(self) -> dict[int, Measured]:
        """What the decision before left of each, run together."""
        if self._feeds:
            self._judge(self._feeds).measure(self._before)
        return {feed.id: self._judge([feed]).measure(self._before) for feed in self._feeds}

    @cached_property
    def _limits(self) -> tuple[float, float]:
        limit, bound = self._least
        known = tuple(self._known.values())
        if not known:
            return limit, bound
        return max(limit, *(each.ratio for each in known)), max(bound, unseen_bound(known))
