"""How far a search is: what is being tried, the model runs spent, the parts walked, and how long the rest takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from halfwise.search.run_counter import RunCounter

__all__ = ["with_time_left", "with_walks"]

_EVERY_S = 1.0  # that a walk through a model is told of


def with_time_left(
    notify: Callable[[str], None], counter: RunCounter, samples: int, clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """Puts before each message how much of the budget of runs is spent, each over so many samples, once that tells:
    a narrow terminal cuts off the end."""
    since = clock()

    def tell(text: str) -> None:
        done, most, passed = counter.passes(samples), counter.most_passes, clock() - since
        if not (1 <= done < most < math.inf and passed >= 1):
            return notify(text)
        left = _spoken(passed / done * (most - done))
        return notify(f"at most {left} left ({done:.0f} of {most:.0f} runs): {text}")

    return tell


def with_walks(
    notify: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> tuple[Callable[[str], None], Callable[[int, int], None]]:
    """Two to call: with a message, and in each walk through a model with the parts done and their number.

    A walk that takes long is told behind the last message.
    """
    last, since, told = "", clock(), clock()

    def tell(text: str) -> None:
        nonlocal last
        last = text
        notify(text)

    def walked(done: int, total: int) -> None:
        nonlocal since, told
        now = clock()
        if not done:
            since = told = now
        if done and last and now - told >= _EVERY_S:
            told = now
            left = _spoken((now - since) / done * (total - done))
            notify(f"{last}: part {done} of {total}, about {left} left")

    return tell, walked


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
