"""Commands that are safe to copy into a shell, whatever a path holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import PurePath

from halfwise.report.text import safe

__all__ = ["input_words", "shell"]

_OF_INPUTS = (
    "--inputs", "--images", "--size", "--mean", "--std", "--layout", "--range", "--audio", "--rate", "--shapes",
    "--minShapes", "--optShapes", "--maxShapes", "--min-shapes", "--opt-shapes", "--max-shapes",
)  # fmt: skip
_SWITCHES = ("--letterbox", "--stretch")


def input_words(command: str) -> list[str]:
    """The options of a command line that say what it runs on, for a command to go on with."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    found: list[str] = []
    for place, word in enumerate(words):
        if word in _SWITCHES or (word.partition("=")[0] in _OF_INPUTS and "=" in word):
            found.append(word)
        elif word in _OF_INPUTS and place + 1 < len(words):
            found += [word, words[place + 1], *(_others(words[place + 1 :]) if word == "--inputs" else ())]
    return found


def _others(words: Sequence[str]) -> Iterator[str]:
    """The files behind the first that a shell spelled out with it."""
    kind = PurePath(words[0]).suffix
    return takewhile(lambda word: kind and PurePath(word).suffix == kind, words[1:])


def shell(words: Sequence[str]) -> str:
    """A command as one line. What cannot be seen is spelled out, so that what is shown is what is copied."""
    return " ".join(_word(word) for word in words)


def _word(word: str) -> str:
    if safe(word) == word:
        return shlex.quote(word)
    return f"$'{safe(word.translate({92: chr(92) * 2, 39: chr(92) + chr(39)}))}'"
