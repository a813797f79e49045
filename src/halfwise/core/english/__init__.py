"""The English of every note, as one table from kinds to templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, TypedDict

from halfwise.core.document import read
from halfwise.core.english.advising import ADVISING
from halfwise.core.english.auditing import AUDITING
from halfwise.core.english.backends import BACKENDS
from halfwise.core.english.compiler import COMPILER
from halfwise.core.english.converting import CONVERTING
from halfwise.core.english.deploying import DEPLOYING
from halfwise.core.english.doctoring import DOCTORING
from halfwise.core.english.findings import FINDINGS
from halfwise.core.english.gating import GATING
from halfwise.core.english.inputs import INPUTS
from halfwise.core.english.judging import JUDGING
from halfwise.core.english.outputs import OUTPUTS
from halfwise.core.english.reasons import REASONS
from halfwise.core.english.rollouts import ROLLOUTS
from halfwise.core.english.scanning import SCANNING
from halfwise.core.english.training import TRAINING
from halfwise.core.english.verdicts import VERDICTS
from halfwise.core.notes import Note, NoteKind
from halfwise.core.wording import counted, listed, number, percent, share_of, together

__all__ = ["TEMPLATES", "documented", "fill", "said", "say", "say_all"]

TEMPLATES: Mapping[NoteKind, str] = {
    **INPUTS, **OUTPUTS, **BACKENDS, **DEPLOYING, **COMPILER, **VERDICTS, **REASONS, **FINDINGS,
    **SCANNING, **TRAINING, **ROLLOUTS, **AUDITING, **GATING, **DOCTORING, **JUDGING, **ADVISING, **CONVERTING,
}  # fmt: skip


def _names(names: Iterable[str]) -> str:
    return listed(names, quote=str)


def _commas(names: Iterable[str]) -> str:
    return ", ".join(names)


def _change(pair: Sequence[int]) -> str:
    return f"{pair[0]:,} -> {pair[1]:,}"


def said(notes: Iterable[Note | Mapping[str, Any]]) -> str:
    """Notes that are parts of one sentence."""
    return "; ".join(say(_as_note(note)) for note in notes)


def _as_note(note: Note | Mapping[str, Any]) -> Note:
    """A document holds a note's values as plain JSON."""
    return note if isinstance(note, Note) else read(note, Note, "a note")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _either(names: Iterable[str]) -> str:
    return " or ".join(names)


def _shape(sizes: Iterable[int]) -> str:
    return str(tuple(sizes))


_SPECIAL: Mapping[str, Callable[[Any], str]] = {
    "list": listed,
    "plain": together,
    "names": _names,
    "commas": _commas,
    "either": _either,
    "are": _are,
    "shape": _shape,
    "said": said,
    "change": _change,
    "number": number,
    "percent": percent,
    "share": share_of,
}


class _Words(Formatter):
    """Adds to Python's format specifications what sentences need.

    `many NOUN` or `many NOUN/NOUNS` count, `are` is the verb behind a number; `list` gives the first few names in
    quotes, `names` the same without; `plain`, `either` and `commas` give all of a list, with "and", "or" or neither;
    `shape` is a tuple; `change` is a pair, before and after; `number`, `percent` and `share` round for people; `said`
    is a list of notes.
    """

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, (Note, Mapping)):
            return say(_as_note(value))
        if format_spec.startswith("many "):
            return counted(value, *format_spec.removeprefix("many ").split("/"))
        if format_spec in _SPECIAL:
            return _SPECIAL[format_spec](value)
        return str(super().format_field(value, format_spec))


def fill(template: str, **values: Any) -> str:
    """The template with its values, counted and listed as its fields ask."""
    return _Words().format(template, **values)


def say(note: Note) -> str:
    """The note in English."""
    return fill(TEMPLATES[note.kind], subject=note.subject, **note.values)


def say_all(notes: Iterable[Note]) -> list[str]:
    return [say(note) for note in notes]


class Told(TypedDict):
    """The keys of a document that hold notes."""

    notes: list[str]
    messages: tuple[Note, ...]


def documented(notes: Iterable[Note]) -> Told:
    """`notes` in words, `messages` as data."""
    notes = tuple(notes)
    return {"notes": say_all(notes), "messages": notes}
