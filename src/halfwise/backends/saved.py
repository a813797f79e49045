"""The backend that ran already: outputs that something else computed, one .npz file a sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from halfwise.backends.backend import BackendRecord, BackendRun, Feed, Traits
from halfwise.core.errors import InputError
from halfwise.core.file_order import by_number
from halfwise.core.notes import Note, NoteKind

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
        files = [self.path] if self.path.is_file() else sorted(self.path.glob("*.npz"), key=by_number)
        if not files:
            raise InputError(f"{self.path}: no .npz files with saved outputs in it")
        if len(files) != len(feeds):
            raise InputError(
                f"{self.path} holds {len(files)} saved outputs for {len(feeds)} samples; "
                "save one .npz file a sample, in the order of the samples"
            )
        outputs = []
        for file in files:
            try:
                with np.load(file, allow_pickle=False) as saved:
                    outputs.append({name: saved[name] for name in saved.files})
            except Exception as error:
                raise InputError(f"{file} cannot be read as saved outputs: {error}") from None
        return BackendRun(tuple(outputs), BackendRecord(self.name, "saved outputs", ""))
