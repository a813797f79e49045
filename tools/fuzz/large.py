"""Makes models of a few bytes run as large ones do: in parts, and what is found out about them is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

__all__ = ["CACHE", "small_counts_as_large"]

CACHE = "cache"  # in the folder of a run: in place of the user's


@contextmanager
def small_counts_as_large() -> Iterator[None]:
    """A file of weights has the same stamp wherever and whenever it is written."""
    from halfwise.emulation import emulate
    from halfwise.model import weight_facts

    def stamp(file: Path) -> tuple[object, ...]:
        return (file.name,)

    facts = mock.patch.multiple(weight_facts, _LARGE=0, _stamp=stamp)
    with mock.patch.object(emulate, "LARGE_BYTES", 0), facts, mock.patch.dict(os.environ, HALFWISE_CACHE=CACHE):
        weight_facts._known.cache_clear()
        try:
            yield
        finally:
            weight_facts._known.cache_clear()
