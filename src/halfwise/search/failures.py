"""What failed on the way to an answer and was done without: trials that cannot run, repairs that are not taken."""

from __future__ import annotations

import os
import sys
import traceback

from halfwise.core.notes import Note, NoteKind

__all__ = ["Failures"]


class Failures:
    """Passed to whatever may fail without ending the job; each is told once. HALFWISE_DEBUG shows where it was."""

    def __init__(self) -> None:
        self._notes: dict[tuple[NoteKind, str], Note] = {}
        self.trials = 0  # that could not be run

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._notes.values())

    def trial(self, error: Exception) -> None:
        """A set of FP32 nodes with which the model cannot be run."""
        self.trials += 1
        self._add(Note.of(NoteKind.TRIAL_NOT_RUN, error=_brief(error)), error)

    def walk(self, error: Exception) -> None:
        """A model that cannot be run node by node."""
        self._add(Note.of(NoteKind.NOT_STEPPED, error=_brief(error)), error)

    def rule(self, name: str, error: Exception) -> None:
        """A repair rule that threw."""
        self._add(Note.of(NoteKind.RULE_FAILED, name, error=f"{type(error).__name__}: {_brief(error)}"), error)

    def repair(self, name: str, error: Exception) -> None:
        """A repaired model that cannot be run in FP32."""
        self._add(Note.of(NoteKind.REPAIR_NOT_RUN, name, error=_brief(error)), error)

    def unfaithful(self, name: str, departure: float) -> None:
        """A repaired model that gives another FP32 answer than the rule promises."""
        self._add(Note.of(NoteKind.REPAIR_UNFAITHFUL, name, departure=departure))

    def _add(self, note: Note, error: Exception | None = None) -> None:
        first = self._notes.setdefault((note.kind, note.subject), note)
        if error is not None and first is note and os.environ.get("HALFWISE_DEBUG"):
            traceback.print_exception(error, file=sys.stderr)


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
