"""The backend that ran already: outputs that something else computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from halfwise.backends.backend import BackendRecord, BackendRun, Feed, Traits
from halfwise.backends.saved_files import saved_samples
from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.core.wording import counted

__all__ = ["SavedBackend"]


class SavedBackend:
    """Outputs in the order of the samples. They are of one model only, so that nothing can be searched with them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return f"saved:{self.path}"

    @property
    def cautions(self) -> tuple[Note, ...]:
        return (Note.of(NoteKind.OUTPUTS_UNCHECKED, str(self.path)),)

    @property
    def traits(self) -> Traits:
        return Traits()

    def run(self, model: Path, feeds: Sequence[Feed]) -> BackendRun:
        found = saved_samples(self.path)
        if len(found) != len(feeds):
            raise InputError(
                f"{self.path} holds {counted(len(found), 'saved output')} for {counted(len(feeds), 'sample')}; "
                "save one file a sample, in the order of the samples"
            )
        return BackendRun(tuple(each.read() for each in found), BackendRecord(self.name, "saved outputs", ""))
