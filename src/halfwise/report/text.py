"""Text from strangers, made safe to show: names of nodes and tensors come out of files that anyone may have written."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["brief", "safe", "width_of"]

# Control, format (with what turns the writing direction), surrogate, private, unassigned, line and paragraph ends.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_ELLIPSIS = "..."
_WORD = 300  # columns; names may be longer, paths and words seldom are
_PARAGRAPH = 2_000
_LONG_WORDS = re.compile(rf"\S{{{_WORD // 2 + 1},}}")  # a letter takes two columns at most


def safe(name: str, width: int | None = None) -> str:
    """The name with everything that moves a cursor, colours, hides or turns text written out as an escape.

    With a `width`, a longer one is shortened in the middle: both ends of a node's name tell where it is.
    """
    plain = name.isascii() and name.isprintable()
    shown = name if plain else "".join(_escaped(c) if unicodedata.category(c) in _UNSEEN else c for c in name)
    if width is None or width_of(shown) <= width:
        return shown
    if width <= len(_ELLIPSIS):
        return _cut(shown, width)
    kept = width - len(_ELLIPSIS)
    head = _cut(shown, kept // 2)
    return f"{head}{_ELLIPSIS}{_cut(shown[::-1], kept - width_of(head))[::-1]}"


def brief(text: str) -> str:
    """A sentence made safe, in which no name fills the screen."""
    return safe(_LONG_WORDS.sub(lambda found: safe(found[0], _WORD), safe(text)), _PARAGRAPH)


def width_of(text: str) -> int:
    """How many columns of a terminal a text takes, by the table that lays out the screen."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len  # an error in plain letters does not load it

    return cell_len(text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _cut(text: str, width: int) -> str:
    taken = 0
    for index, character in enumerate(text):
        taken += width_of(character)
        if taken > width:
            return text[:index]
    return text
