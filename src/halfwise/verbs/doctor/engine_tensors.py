"""The tensors inside an engine, as it was asked to save them, beside those of FP32 and of emulated plain FP16."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.backends.saved_tensors import SavedTensor, is_tensor_file, tensors_of_files, tensors_of_summary
from halfwise.core.english.finding import finding
from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.files.identify import Identified
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding, Where
from halfwise.core.float_sum import float_sum
from halfwise.core.notes import Note, NoteKind
from halfwise.core.wording import counted
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.model.fp32_model import fp32_model
from halfwise.model.inputs.all_samples import all_samples
from halfwise.model.model import Model
from halfwise.model.ops import BODIES
from halfwise.verbs.doctor.case import Case
from halfwise.verbs.runners import EmulatedRunner

__all__ = ["tensor_findings", "tensors_apart"]

Array = NDArray[Any]

_ALIKE = 4.0  # times: errors of two that round alike
_LEAST = 0.01  # an error below this is nothing to look for
_MOST_SAMPLES = 4
_MOST_VALUES = 1 << 27  # of all tensors that are compared


def tensors_apart(case: Case) -> tuple[Case, tuple[SavedTensor, ...]]:
    """The case without the files that hold tensors of the engine, and these in the order of execution."""
    material, notes, facts = case.material, list(case.notes), dict(case.facts)
    found: dict[str, SavedTensor] = {}
    for path in material.of(FileKind.TENSOR_SUMMARY):
        try:
            told = tensors_of_summary(path)
        except InputError as error:
            notes.append(Note.of(NoteKind.FILE_NOT_READ, str(path), why=str(error)))
            continue
        facts[path] = counted(len(told), "tensor")
        found.update({tensor.name: tensor for tensor in told})
    listed = {tensor.file for tensor in found.values()}
    candidates = [file for path in material.samples if path.is_dir() for file in path.iterdir()]
    candidates += material.of(FileKind.NPY, FileKind.RAW)
    named = tuple(SavedTensor(name, file=path) for name, path in case.files_of("--saveDebugTensors").items())
    names = [value.name or "" for node in case.model.nodes for value in node.outputs] if case.model else []
    left = [path for path in candidates if path not in listed and is_tensor_file(path)]
    told = tensors_of_files(left, names)
    found.update({tensor.name: tensor for tensor in named if tensor.name not in found})
    found.update({tensor.name: tensor for tensor in told if tensor.name not in found})
    folders = {tensor.file.parent for tensor in told if tensor.file is not None}
    taken = listed | folders | {tensor.file for tensor in named} | {path for path in left if path.parent in folders}
    samples = tuple(path for path in material.samples if path not in taken)
    files = [each for each in material.files if each.path not in taken]
    files += [Identified(folder, FileKind.TENSORS) for folder in sorted(folders)]
    facts.update(dict.fromkeys(folders, counted(len(told), "tensor")))
    apart = replace(material, samples=samples, files=tuple(files))
    return replace(case, material=apart, facts=facts, notes=tuple(notes)), tuple(found.values())


def tensor_findings(
    case: Case, tensors: Sequence[SavedTensor], notes: list[Note], notify: Callable[[int, int], None]
) -> Iterator[Finding]:
    """Where the engine's values stop being finite, and where they leave what plain FP16 explains."""
    if not tensors:
        return
    model, samples = case.model, case.material.samples
    tensors = [_checked(tensor, notes) for tensor in tensors]
    compared: list[_Compared] = []
    try:
        if model is not None and samples:
            compared = _compared(fp32_model(model), samples, tensors, notify)
    except HalfwiseError as error:
        notes.append(Note.of(NoteKind.SAVED_NOT_COMPARED, tensors[0].name, why=str(error)))
    infinite = {each.name for each in compared if np.isinf(each.error)}
    broken = [tensor.name for tensor in tensors if tensor.name in infinite or not _is_finite(tensor)]
    if broken:
        counts = {"count": len(broken), "total": len(tensors)}
        node, by = _writer(broken[0], model)
        note = Note.of(NoteKind.TENSORS_NOT_FINITE, broken[0], by=by, count=len(broken), total=len(tensors))
        yield finding("HW617", Where("tensor", broken[0]), note, {**counts, "node": node})
    if not compared:
        return
    first = next((each for each in compared if each.departs and each.name not in broken), None)
    entrance = next((each.name for each in compared if each.of_inputs), "")
    if first is not None and first.name == entrance:
        notes.append(Note.of(NoteKind.TENSORS_OF_OTHERS, first.name, error=first.error))
    elif first is not None:
        node, by = _writer(first.name, model)
        before = compared[compared.index(first) - 1] if first is not compared[0] else first
        errors = {"error": first.error, "fp16": first.fp16, "before": before.error}
        note = Note.of(
            NoteKind.TENSORS_DEPART, first.name, by=by, error=first.error, fp16=first.fp16, before=before.error
        )
        yield finding("HW618", Where("tensor", first.name), note, {**errors, "node": node})
    elif not broken:
        worst = max(compared, key=lambda each: each.error)
        node, by = _writer(worst.name, model)
        numbers = {"count": len(compared), "error": worst.error}
        note = Note.of(NoteKind.TENSORS_AS_FP16, worst.name, by=by, count=len(compared), error=worst.error)
        yield finding("HW619", Where("tensor", worst.name), note, {**numbers, "node": node})


def _writer(tensor: str, model: Model | None) -> tuple[str | None, Note | str]:
    """The node that writes it, and that as a part of a sentence."""
    nodes = model.nodes if model is not None else ()
    found = next((node.name for node in nodes if any(value.name == tensor for value in node.outputs)), None)
    return found, Note.of(NoteKind.WRITTEN_BY, found) if found else ""


@dataclass(frozen=True)
class _Compared:
    """A tensor's error against FP32, that of the engine and that of emulated FP16."""

    name: str
    error: float
    fp16: float
    of_inputs: bool  # whether it depends on what is fed

    @property
    def departs(self) -> bool:
        return self.error > max(_ALIKE * self.fp16, _LEAST)


def _compared(
    model: Model, samples: Sequence[Path], tensors: Sequence[SavedTensor], notify: Callable[[int, int], None]
) -> list[_Compared]:
    """On the sample that the engine's tensors fit best: which one it saw is not in its files."""
    made = {value.name for node in model.ir.graph for value in node.outputs}
    own = tuple(tensor.name for tensor in tensors if tensor.name in made)
    if not own:
        return []
    watched = replace(model, watched=own)
    wide, narrow = EmulatedRunner(watched), EmulatedRunner(watched, narrow=True)
    found = all_samples(model.inputs, list(samples), most=_MOST_SAMPLES, sizes=sizes_that_run(model, list(samples)))
    fed = _fed(model)
    best: list[_Compared] = []
    for index, feed in enumerate(found.feeds):
        wanted, rounded = wide.run(index, feed), narrow.run(index, feed)
        errors = list(_errors(tensors, wanted, rounded, fed))
        if not best or _misfit(errors) < _misfit(best):
            best = errors
        notify(index + 1, len(found.feeds))
    return best


def _misfit(errors: Sequence[_Compared]) -> float:
    return float_sum(min(each.error, 1.0) for each in errors)


def _fed(model: Model) -> frozenset[str]:
    """The tensors that depend on the inputs."""
    found = {value.name or "" for value in model.ir.graph.inputs}
    for node in model.ir.graph:
        if BODIES & {node.op_type} or any(value is not None and value.name in found for value in node.inputs):
            found |= {value.name or "" for value in node.outputs}
    return frozenset(found)


def _errors(
    tensors: Sequence[SavedTensor], wanted: Mapping[str, Array], rounded: Mapping[str, Array], fed: Collection[str]
) -> Iterator[_Compared]:
    left = _MOST_VALUES
    for tensor in tensors:
        exact = wanted.get(tensor.name)
        if exact is None or exact.dtype.kind != "f" or not exact.size or not np.isfinite(exact).all():
            continue
        left -= exact.size
        values = tensor.read(exact.shape) if left > 0 else None
        if values is not None and values.size == exact.size:
            seen = values.astype(np.float64).reshape(exact.shape)
            both = _apart(seen, exact), _apart(rounded[tensor.name], exact)
        elif tensor.lowest is not None and tensor.highest is not None:
            ends = np.array([tensor.lowest, tensor.highest], dtype=np.float64)
            both = _apart(ends, _ends(exact)), _apart(_ends(rounded[tensor.name]), _ends(exact))
        else:
            continue
        yield _Compared(tensor.name, *both, tensor.name in fed)


def _apart(seen: Array, exact: Array) -> float:
    """The relative error; infinite where a value is not finite."""
    if not np.isfinite(seen).all():
        return float("inf")
    exact = exact.astype(np.float64)
    scale = float(np.linalg.norm(exact)) or 1.0
    return float(np.linalg.norm(seen.astype(np.float64) - exact)) / scale


def _ends(values: Array) -> Array:
    return np.array([values.min(), values.max()], dtype=np.float64)


def _checked(tensor: SavedTensor, notes: list[Note]) -> SavedTensor:
    """Without its file where that is damaged, which is told."""
    try:
        if tensor.file is not None and tensor.file.suffix == ".npy":
            tensor.read(())
    except InputError as error:
        notes.append(Note.of(NoteKind.FILE_NOT_READ, str(tensor.file), why=str(error)))
        return replace(tensor, file=None)
    return tensor


def _is_finite(tensor: SavedTensor) -> bool:
    stated = [each for each in (tensor.lowest, tensor.highest, tensor.average) if each is not None]
    if stated or tensor.file is None or tensor.file.suffix != ".npy":
        return bool(np.isfinite(stated).all())
    values = tensor.read(())
    return values is None or values.dtype.kind != "f" or bool(np.isfinite(values).all())
