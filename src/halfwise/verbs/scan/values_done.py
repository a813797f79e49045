"""How many values of all weights are done: one weight may have most of them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["values_done"]


def values_done(total: int, notify: Callable[[int, int], None]) -> Callable[[int], None]:
    """What takes how many more values are done, and tells a listener the sum and the total."""
    done = 0

    def more(values: int) -> None:
        nonlocal done
        done += values
        notify(done, total)

    return more
