"""How far a search is: what is being tried, with the model runs spent and the longest that the rest can take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from halfwise.search.run_counter import RunCounter

__all__ = ["with_time_left"]


def with_time_left(
    notify: Callable[[str], None], counter: RunCounter, samples: int, clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """Adds to each message how much of the budget of runs is spent, each over so many samples, once that tells."""
    since = clock()

    def tell(text: str) -> None:
        done, most, passed = counter.passes(samples), counter.most_passes, clock() - since
        if not (1 <= done < most < math.inf and passed >= 1):
            return notify(text)
        left = _spoken(passed / done * (most - done))
        return notify(f"{text} ({done:.0f} of at most {most:.0f} model runs; at most {left} left)")

    return tell


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
