"""A few of many in order, with all of which something holds, where asking takes long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["fewest"]

Item = TypeVar("Item")


def fewest(items: Sequence[Item], enough: Callable[[Sequence[Item]], bool], may_ask: Callable[[], bool]) -> list[Item]:
    """Of all of them, which are enough, the shortest beginning that is enough is sought; its last item is one of those
    wanted, and the rest are sought before it in the same way. All of a beginning once no more may be asked."""
    wanted: list[Item] = []
    while items:
        if not may_ask():
            return [*items, *wanted]
        if enough(wanted):
            break
        fails, good = 0, len(items)
        while good - fails > 1:
            if not may_ask():
                return [*items[:good], *wanted]
            middle = (fails + good) // 2
            if enough([*items[:middle], *wanted]):
                good = middle
            else:
                fails = middle
        wanted.append(items[good - 1])
        items = items[: good - 1]
    return wanted
