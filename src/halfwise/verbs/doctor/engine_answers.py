"""What an engine answered, as it was saved, beside the answers of FP32 and the error of emulated plain FP16."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from halfwise.backends.saved_files import SavedSample, bindings_sample, saved_samples
from halfwise.core.archives import names_in_npz
from halfwise.core.english.finding import finding
from halfwise.core.errors import HalfwiseError
from halfwise.core.file_order import by_number
from halfwise.core.files.bindings import Binding, binding_of
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding, Where
from halfwise.core.notes import Note, NoteKind
from halfwise.model.model import Model
from halfwise.verbs.doctor.case import Case
from halfwise.verbs.doctor.gather import Material
from halfwise.verbs.runners import SavedOutputs
from halfwise.verbs.verify import verify

__all__ = ["Saved", "engine_answers", "saved_apart", "with_loaded"]

_ALIKE = 4.0  # times: errors of two that round alike


@dataclass(frozen=True)
class Saved:
    """Answers of an engine to one set of inputs; `inputs`: where they were saved with it."""

    paths: tuple[Path, ...]
    samples: tuple[SavedSample, ...] = ()  # empty: what the paths hold
    inputs: Path | None = None

    @property
    def name(self) -> str:
        folder = self.paths[0].parent
        several = len(self.paths) > 1 and folder.name and all(path.parent == folder for path in self.paths)
        return str(folder) if several else ", ".join(map(str, self.paths))

    def read(self) -> SavedOutputs:
        samples = self.samples or tuple(sample for path in self.paths for sample in saved_samples(path))
        return SavedOutputs(self.paths[0], samples)


def with_loaded(case: Case) -> Material:
    """With the raw files of the inputs: those that the build's command names with --loadInputs, where all are here, or
    those of the size of the only input.
    """
    model, files, material = case.model, case.files_of("--loadInputs"), case.material
    if model is None:
        return material
    wanted = {spec.name for spec in model.inputs if not spec.optional}
    found = [_as_inputs(files)] if files and files.keys() >= wanted else []
    if not files and not material.samples and len(model.inputs) == 1:
        (spec,) = model.inputs
        sizes = [size for size in spec.shape or () if isinstance(size, int)]
        fits = math.prod(sizes) * spec.dtype.itemsize if len(sizes) == len(spec.shape or ()) else 0
        raw = (path for path in material.of(FileKind.RAW) if path.stat().st_size == fits)
        found = [_as_inputs({spec.name: path}) for path in raw]
    return replace(material, samples=(*material.samples, *found))


def _as_inputs(files: Mapping[str, Path]) -> Path:
    """As `--inputs` takes them."""
    return Path(",".join(f"{name}:{file}" for name, file in files.items()))


def saved_apart(material: Material, model: Model) -> tuple[Material, tuple[Saved, ...]]:
    """The material without the files that hold outputs of the model, and these. Inputs that trtexec dumped become
    samples.
    """
    outputs = frozenset(model.output_names) - {spec.name for spec in model.inputs}
    saved = [path for path in material.samples if _holds(path, outputs)]
    inputs = tuple(path for path in material.samples if path not in saved)
    saved += material.of(FileKind.POLYGRAPHY_OUTPUTS, FileKind.TRTEXEC_OUTPUTS)
    runs = _runs(material.of(FileKind.BINDING), model)
    inputs = tuple(dict.fromkeys((*(run.inputs for run in runs if run.inputs is not None), *inputs)))
    answers = [Saved(tuple(saved))] if saved else []
    return replace(material, samples=inputs), (*answers, *(run for run in runs if run.paths))


def _runs(paths: Sequence[Path], model: Model) -> list[Saved]:
    """Of every folder with bindings the outputs, and the inputs as `--inputs` takes them, where all are there."""
    folders: dict[Path, list[Binding]] = {}
    for path in paths:
        if (binding := binding_of(path)) is not None:
            folders.setdefault(path.parent, []).append(binding)
    found = []
    for bindings in folders.values():
        files = {spec.name: each.path for spec in model.inputs for each in bindings
                 if not each.is_output and each.is_of(spec.name)}  # fmt: skip
        whole = files.keys() >= {spec.name for spec in model.inputs if not spec.optional}
        inputs = _as_inputs(files) if whole and files else None
        outputs = [each for each in bindings if each.is_output]
        samples = (bindings_sample(outputs),) if outputs else ()
        found.append(Saved(tuple(each.path for each in outputs), samples, inputs))
    return found


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
    saved: Saved,
    fp16: float,
    notify: Callable[[int, int], None],
) -> tuple[Finding | None, Note | None]:
    """What the saved outputs are worth; or why that cannot be told. `fp16` is what emulated plain FP16 has of the
    error that is allowed."""
    named, samples = saved.name, samples if saved.inputs is None else (saved.inputs,)
    if not samples:
        return None, Note.of(NoteKind.SAVED_NOT_COMPARED, named, why="give the inputs that it was computed from, too")
    try:
        found = verify(model, saved.read(), list(samples), notify=notify)
    except HalfwiseError as error:
        return None, Note.of(NoteKind.SAVED_NOT_COMPARED, named, why=str(error))
    if disordered := [note for note in found.notes if note.kind is NoteKind.SAVED_IN_OTHER_ORDER]:
        return None, disordered[0]
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
