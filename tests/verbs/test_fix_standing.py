"""Of several cautions the first line tells the one that matters most."""

from __future__ import annotations

from itertools import permutations

import pytest

from halfwise.core.notes import Note, NoteKind
from halfwise.verbs.fix.standing import caution_of

PINNED, UNSEEN, INFO = (
    Note.of(kind) for kind in (NoteKind.MOST_PINNED, NoteKind.UNSEEN_MAY_MISS, NoteKind.PROFILE_UNPROVEN)
)


@pytest.mark.parametrize(
    "kind",
    [NoteKind.NOT_WRITTEN_OUT, NoteKind.QUANTISED_NOT_READ, NoteKind.INTEGERS_NOT_READ, NoteKind.PARSER_REFUSES],
)
def test_what_ends_a_build_is_told_first(kind: NoteKind) -> None:
    """A dynamically quantised network for TensorRT was told that most of it cannot be FP16."""
    ends = Note.of(kind, "TensorRT 11.0")
    for notes in permutations([INFO, PINNED, ends, UNSEEN]):
        assert caution_of(notes) is ends


def test_else_the_first_one_is() -> None:
    assert caution_of([INFO, UNSEEN, PINNED]) is UNSEEN
    assert caution_of([INFO, Note.of(NoteKind.SYNTHETIC)]) is None
