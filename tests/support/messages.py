"""What the notes of a result hold, for tests that assert data and not sentences."""

from __future__ import annotations

from collections.abc import Iterable

from halfwise.core.notes import Note, NoteKind

__all__ = ["kinds", "only", "saying"]


def kinds(notes: Iterable[Note]) -> list[NoteKind]:
    return [note.kind for note in notes]


def only(notes: Iterable[Note], kind: NoteKind) -> Note:
    """The one note of this kind."""
    (found,) = [note for note in notes if note.kind is kind]
    return found


def saying(text: str) -> Note:
    """A note that says just this, for tests of how reports show any text."""
    return Note.of(NoteKind.PLAN_REFUSED, why=text)
