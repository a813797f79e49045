"""The samples that the build script runs its engine on: the folder that was given, or what was read, in a new one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from halfwise.core.notes import NoteKind
from halfwise.core.whole_files import WholeFiles
from halfwise.model.inputs.samples import Samples
from halfwise.model.inputs.save import save_samples

__all__ = ["engine_samples"]

_FITTED = frozenset({NoteKind.INPUT_TAKEN_AS, NoteKind.BATCH_ADDED, NoteKind.BATCH_SPLIT})
_OTHERS = (".npy", ".json")  # that a folder of samples may hold, and the script does not read


def engine_samples(inputs: Any, samples: Samples, folder: Path) -> Path:
    """A folder of .npz files whose arrays the engine takes as they are; `folder` is written where none was given."""
    given = _only_path(inputs)
    if given is not None and given.is_dir() and not any(note.kind in _FITTED for note in samples.notes):
        kinds = {path.suffix.lower() for path in given.iterdir()}
        if ".npz" in kinds and not kinds & set(_OTHERS):
            return given
    with WholeFiles(folder.parent) as files:
        save_samples(files, folder, samples.all)
    return folder


def _only_path(inputs: Any) -> Path | None:
    if isinstance(inputs, (list, tuple)) and len(inputs) == 1:
        (inputs,) = inputs
    return Path(inputs) if isinstance(inputs, (str, os.PathLike)) else None
