"""What an engine answered, as it was saved, beside the answers of FP32 and the error of emulated plain FP16."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from halfwise.core.archives import names_in_npz
from halfwise.core.english.finding import finding
from halfwise.core.errors import HalfwiseError
from halfwise.core.file_order import by_number
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding, Where
from halfwise.core.notes import Note, NoteKind
from halfwise.model.model import Model
from halfwise.verbs.doctor.gather import Material
from halfwise.verbs.verify import SavedOutputs, verify

__all__ = ["engine_answers", "saved_apart"]

_ALIKE = 4.0  # times: errors of two that round alike


def saved_apart(material: Material, model: Model) -> tuple[Material, tuple[Path, ...]]:
    """The material without the files that hold outputs of the model, and these."""
    outputs = frozenset(model.output_names) - {spec.name for spec in model.inputs}
    saved = [path for path in material.samples if _holds(path, outputs)]
    inputs = tuple(path for path in material.samples if path not in saved)
    saved += material.of(FileKind.POLYGRAPHY_OUTPUTS, FileKind.TRTEXEC_OUTPUTS)
    return replace(material, samples=inputs), tuple(saved)


def _holds(path: Path, outputs: Collection[str]) -> bool:
    """Whether all arrays are outputs, by their names."""
    file = path
    if path.is_dir():
        file = min(path.glob("*.npz"), key=by_number, default=path)
    names = names_in_npz(file) if file.suffix.lower() == ".npz" else ()
    return bool(names) and set(names) <= set(outputs)


def engine_answers(
    model: Model,
    samples: Sequence[Path],
    saved: Sequence[Path],
    fp16: float,
    notify: Callable[[int, int], None],
) -> tuple[Finding | None, Note | None]:
    """What the saved outputs are worth; or why that cannot be told. `fp16` is what emulated plain FP16 has of the
    error that is allowed."""
    folder = saved[0].parent
    several = len(saved) > 1 and all(path.parent == folder for path in saved)
    named = str(folder) if several else ", ".join(map(str, saved))
    if not samples:
        return None, Note.of(NoteKind.SAVED_NOT_COMPARED, named, why="give the inputs that it was computed from, too")
    try:
        found = verify(model, SavedOutputs(*saved), list(samples), notify=notify)
    except HalfwiseError as error:
        return None, Note.of(NoteKind.SAVED_NOT_COMPARED, named, why=str(error))
    ratio, where = found.tolerance.ratio(found.outputs, found.floats, None), Where("output", named)
    if found.met:
        kept = Note.of(NoteKind.SAVED_KEEP, named, ratio=ratio, count=found.samples)
        return finding("HW616", where, kept, {"load": ratio}), None
    told = found.verdict.because
    missed = Note.of(
        NoteKind.SAVED_MISS, named, ratio=ratio, count=found.samples, told=told, beside=_beside(ratio, fp16)
    )
    return finding("HW615", where, missed, {"load": ratio, "load_fp16": fp16}), None


def _beside(ratio: float, fp16: float) -> Note:
    if fp16 <= 1.0 or ratio > _ALIKE * fp16:
        return Note.of(NoteKind.SAVED_ABOVE_FP16, ratio=fp16)
    if fp16 > _ALIKE * ratio:
        return Note.of(NoteKind.SAVED_BELOW_FP16, ratio=fp16)
    return Note.of(NoteKind.SAVED_AS_FP16, ratio=fp16)
