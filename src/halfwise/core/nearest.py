"""What a user may have meant by a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["nearest"]

_SHOWN = 3


def nearest(word: str, known: Iterable[str]) -> str:
    """A few names that look like it, as the end of a sentence; nothing where none does."""
    names = list(dict.fromkeys(known))
    folded = {name.casefold(): name for name in reversed(names)}
    close = get_close_matches(word.casefold(), folded, _SHOWN, 0.6)
    inside = [name for name in names if word.casefold().strip("/*") and word.casefold().strip("/*") in name.casefold()]
    found = list(dict.fromkeys([*(folded[each] for each in close), *inside]))[:_SHOWN]
    return f" (did you mean {', '.join(map(repr, found))}?)" if found else ""
