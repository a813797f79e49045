"""Doctor: what the files that a user has in hand are, what they tell together, and the one next command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.files.identify import Identified
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import SEVERITIES, Finding
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Typing
from halfwise.model.model import Model
from halfwise.model.patterns import Pattern
from halfwise.verbs.doctor.built import built_findings
from halfwise.verbs.doctor.case import Case, read_case
from halfwise.verbs.doctor.engine_answers import Saved, engine_answers, saved_apart, with_loaded
from halfwise.verbs.doctor.engine_tensors import tensor_findings, tensors_apart
from halfwise.verbs.doctor.fixed import Fixed, fixed_of, judged
from halfwise.verbs.doctor.gather import gather
from halfwise.verbs.doctor.measured import Measured, measure
from halfwise.verbs.doctor.next_step import next_step
from halfwise.verbs.doctor.result import Diagnosed
from halfwise.verbs.scan import scan

__all__ = ["Diagnosed", "doctor"]

_LARGEST = 1 << 30  # bytes of weights of a model that is run without being asked


def doctor(
    *sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> Diagnosed:
    """Look at any mix of files and folders: models, build logs, layer lists, engines, checkpoints, inputs, results.

    A model is scanned, and with inputs among the files also run, in FP32 and in emulated FP16. Its build log, its
    engine's layers and a plan are compared with it. Nothing is written, and nothing in a file is executed. `notify`
    gets the runs done and their total.
    """
    material = gather(_paths(sources))
    case, tensors = tensors_apart(read_case(material))
    notes = [*case.notes, *_typing(case)]
    scanned: tuple[Finding, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    if case.model is not None:
        result = scan(case.model)
        scanned, patterns = result.findings, result.patterns
    saved: tuple[Saved, ...] = ()
    if case.model is not None:
        apart, saved = saved_apart(with_loaded(case), case.model)
        paths = (path for each in saved for path in each.paths if path in case.material.samples)
        told = dict.fromkeys(paths, "outputs, by the names in it")
        case = replace(case, material=apart, facts={**case.facts, **told})
    fixed = fixed_of(case.model, case.plan, case.planned)
    measured = _measured(case, fixed, notes, notify)
    answers = _answers(case, saved, measured, notes, notify)
    findings = [
        *tensor_findings(case, tensors, notes, notify),
        *(measured.findings if measured is not None else ()),
        *answers,
        *built_findings(case, scanned, patterns),
        # of a fixed model the plan has dealt with what FP16 might do
        *(each for each in scanned if each.severity != "info" and fixed is None),
    ]
    ordered = tuple(sorted(findings, key=lambda each: SEVERITIES.index(each.severity)))
    files = tuple(_of_model(each, case.model) for each in case.material.files)
    return Diagnosed(files, case.facts, case.target, ordered, next_step(case, fixed, measured, ordered), tuple(notes))


def _of_model(file: Identified, model: Model | None) -> Identified:
    """External data may bear any name: a tensor's, a number."""
    is_data = model is not None and file.path.absolute() in {each.absolute() for each in model.files}
    return replace(file, kind=FileKind.EXTERNAL_DATA) if is_data else file


def _typing(case: Case) -> Iterator[Note]:
    """Where flags cannot choose precisions."""
    target = case.target
    if target is not None and target.runtime.builder is not None and Typing.WEAK not in target.typings:
        yield Note.of(NoteKind.STRONG_ONLY, target.title)


def _paths(sources: Iterable[str | os.PathLike[str] | Iterable[str | os.PathLike[str]]]) -> list[Path]:
    found: list[Path] = []
    for source in sources:
        if isinstance(source, (str, os.PathLike)):
            found.append(Path(source))
        elif isinstance(source, Iterable):
            found += _paths(source)
        else:
            raise InputError(f"{source!r} is no path: give files and folders")
    if not found:
        raise InputError("give files or folders: a model, a build log, an engine's layer list, inputs, ...")
    return found


def _answers(
    case: Case,
    saved: tuple[Saved, ...],
    measured: Measured | None,
    notes: list[Note],
    notify: Callable[[int, int], None],
) -> Iterator[Finding]:
    """What an engine answered, where that was saved; a note says why it could not be compared."""
    if case.model is None or not saved or (measured is None and case.material.samples):
        return
    fp16 = measured.ratio if measured is not None else 0.0
    for each in saved:
        found, why = engine_answers(case.model, case.material.samples, each, fp16, notify)
        notes += [why] if why is not None else []
        if found is not None:
            yield found


def _measured(
    case: Case, fixed: Fixed | None, notes: list[Note], notify: Callable[[int, int], None]
) -> Measured | None:
    """None without inputs, for a very large model, or where it does not run: a note says why."""
    if case.model is None or not case.material.inputs:
        return None
    if case.model.weight_bytes > _LARGEST:
        notes.append(Note.of(NoteKind.NOT_RUN_HERE, why=Note.of(NoteKind.WEIGHTS_TOO_LARGE, megabytes=_LARGEST >> 20)))
        return None
    try:
        found: Measured | Note
        if fixed is None:
            found = measure(case.model, case.material.inputs, notify)
        else:
            found = judged(fixed, case.material.inputs, notify)
    except HalfwiseError as error:
        notes.append(Note.of(NoteKind.NOT_RUN_HERE, why=str(error)))
        return None
    if isinstance(found, Note):
        notes.append(found)
        return None
    notes += found.notes
    return found
