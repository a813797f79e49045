"""Commands that are safe to copy into a shell, whatever a path holds."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from pathlib import PurePath

from halfwise.report.text import safe

__all__ = ["input_words", "judging_words", "measuring_words", "original_in", "shell", "without"]

_OF_INPUTS = (
    "--inputs", "--images", "--size", "--mean", "--std", "--layout", "--range", "--audio", "--rate", "--shapes",
    "--minShapes", "--optShapes", "--maxShapes", "--min-shapes", "--opt-shapes", "--max-shapes",
)  # fmt: skip
_SWITCHES = ("--letterbox", "--stretch")
_BYTES = {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}  # of a file's name that are no letters


def input_words(command: str) -> list[str]:
    """The options of a command line that say what it runs on, for a command to go on with."""
    return _stated(command, (*_OF_INPUTS, *_SWITCHES))


def measuring_words(command: str) -> list[str]:
    """What no plan holds of how it is judged: the user's function, and the original of a typed model."""
    return _stated(command, ("--metric", "--reference"))


def judging_words(command: str) -> list[str]:
    """The options of a command line that say how an answer is judged."""
    return _stated(command, ("--tol", "--metric"))


def original_in(command: str) -> str:
    """The FP32 original that a command line names; empty where it names none."""
    stated = _stated(command, ("--reference",))
    return stated[-1].removeprefix("--reference=") if stated else ""


def without(command: str, options: Collection[str]) -> list[str]:
    """The words of a command line less these options, each of which has one value; empty where it cannot be read."""
    words, kept = iter(_words(command)), list[str]()
    for word in words:
        if word in options:
            next(words, "")
        elif word.partition("=")[0] not in options:
            kept.append(word)
    return kept


def _stated(command: str, options: Collection[str]) -> list[str]:
    words, found = _words(command), list[str]()
    for place, word in enumerate(words):
        if (word in options and word in _SWITCHES) or ("=" in word and word.partition("=")[0] in options):
            found.append(word)
        elif word in options and place + 1 < len(words):
            found += [word, words[place + 1], *(_others(words[place + 1 :]) if word == "--inputs" else ())]
    return found


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


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
    spelled = word.translate({92: chr(92) * 2, 39: chr(92) + chr(39)} | _BYTES)
    return f"$'{safe(spelled)}'"
