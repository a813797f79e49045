"""Commands that are safe to copy into a shell, whatever a path holds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from halfwise.report.text import safe

__all__ = ["shell"]


def shell(words: Sequence[str]) -> str:
    """A command as one line. What cannot be seen is spelled out, so that what is shown is what is copied."""
    return " ".join(_word(word) for word in words)


def _word(word: str) -> str:
    if safe(word) == word:
        return shlex.quote(word)
    return f"$'{safe(word.translate({92: chr(92) * 2, 39: chr(92) + chr(39)}))}'"
