"""Reads JSON that a stranger wrote: what is nested deeper than any document of ours is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["DEEPEST", "parse_json"]

DEEPEST = 100  # containers in one another
_TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"


def parse_json(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The document; a ValueError where there is none. `pairs` makes an object of its keys and values."""
    try:
        document = json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [document]
    for _ in range(DEEPEST):
        level = [each for held in level for each in _inside(held) if isinstance(each, (dict, list))]
        if not level:
            return document
    raise ValueError(_TOO_DEEP)


def _inside(held: Any) -> Any:
    return held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
