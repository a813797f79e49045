"""The one command to run next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from halfwise.core.files.identify import Identified
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding
from halfwise.core.notes import Note, NoteKind
from halfwise.model.known_operators import not_run
from halfwise.model.model import Model
from halfwise.model.runnable_part import part_command
from halfwise.verbs.doctor.case import Case
from halfwise.verbs.doctor.document import NextStep
from halfwise.verbs.doctor.fixed import Fixed
from halfwise.verbs.doctor.measured import Measured

__all__ = ["next_step"]

_MODELS = (
    FileKind.CHECKPOINT, FileKind.TORCHSCRIPT, FileKind.TORCH_EXPORT, FileKind.SAFETENSORS, FileKind.TFLITE,
    FileKind.SAVED_MODEL, FileKind.FROZEN_GRAPH, FileKind.HDF5, FileKind.KERAS, FileKind.ZIPPED_MODEL,
    FileKind.LFS_POINTER, FileKind.HTML, FileKind.ARCHIVE, FileKind.CUT_OFF, FileKind.ORT_FORMAT, FileKind.OPENVINO,
    FileKind.GGUF, FileKind.PICKLE, FileKind.SHARD_INDEX, FileKind.EXTERNAL_DATA, FileKind.CUT_OFF_ONNX,
)  # fmt: skip
_FP16_IS_FINE = {"HW614"}


def next_step(case: Case, fixed: Fixed | None, measured: Measured | None, findings: Sequence[Finding]) -> NextStep:
    """Of a model the fix, with what is known of inputs, target and tolerance; of a fixed one the proof; without one the
    way to it."""
    if case.model is not None and case.model.path is not None:
        if fixed is not None:
            return _of_fixed(case, fixed, findings)
        if measured is None and (cut := _cut(case.model, case.model.path)) is not None:
            return cut
        return _with_model(case, case.model.path, measured, findings)
    held = next((each for each in case.material.files if each.kind in _MODELS), None)
    if held is not None:
        return NextStep(held.way, Note.of(NoteKind.NEXT_ONNX, held.name))
    damaged = next((each for each in case.material.files if each.path.suffix == ".onnx"), None)
    if damaged is not None:
        return NextStep(_mended(damaged), Note.of(NoteKind.NEXT_ONNX, str(damaged.path)))
    if case.layers is None and (engine := _engine(case)) is not None:
        command = ["trtexec", f"--loadEngine={engine.path}", "--exportLayerInfo=layers.json", "--skipInference"]
        return NextStep(shlex.join(command), Note.of(NoteKind.NEXT_LAYERS))
    given = [str(each.path) for each in case.material.files]
    return NextStep(shlex.join(["halfwise", "doctor", "MODEL.onnx", *given]), Note.of(NoteKind.NEXT_MODEL))


def _mended(damaged: Identified) -> str:
    """Of a model that cannot be loaded, a note says why."""
    if damaged.kind is FileKind.ONNX:
        return f"do what the note on {damaged.path.name} says"
    return damaged.way or "export or copy the model again"


def _cut(model: Model, path: Path) -> NextStep | None:
    """The part in front of the first node that nothing here runs. Where there is no such part, or where the file's
    graph does not name what it reads, in a body or in a function, `scan` is all that reads the model."""
    node = next(iter(not_run(model.nodes)), None)
    if node is None:
        return None
    words = part_command(model, path, node)
    if not words:
        command = shlex.join(["halfwise", "scan", str(path)])
        return NextStep(command, Note.of(NoteKind.NEXT_SCAN, node.name or "", op=node.op_type))
    return NextStep(shlex.join(words), Note.of(NoteKind.NEXT_CUT, node.name or "", op=node.op_type))


def _of_fixed(case: Case, fixed: Fixed, findings: Sequence[Finding]) -> NextStep:
    """The proof; where that has failed, the search again."""
    if any(each.rule == "HW622" for each in findings):
        return NextStep(shlex.join(_fix(case, fixed.original, case.material.options, fixed.options)),
                        Note.of(NoteKind.NEXT_FIX))  # fmt: skip
    words = ["halfwise", "verify", str(fixed.original), str(fixed.path), *fixed.options, *case.material.options]
    return NextStep(shlex.join(words), Note.of(NoteKind.NEXT_VERIFY, str(fixed.original)))


def _engine(case: Case) -> Identified | None:
    return next((each for each in case.material.files if each.kind is FileKind.ENGINE), None)


def _with_model(case: Case, path: Path, measured: Measured | None, findings: Sequence[Finding]) -> NextStep:
    options = case.material.options if measured is not None or case.material.samples else []
    coarse = measured.coarse if measured is not None else ()
    bounds = [word for name in coarse for word in ("--tol", f"{name}:max_abs<=0.5")]
    command = shlex.join(_fix(case, path, options or ["--inputs", "samples/"], bounds))
    if not options:
        return NextStep(command, Note.of(NoteKind.NEXT_INPUTS))
    rules = {each.rule for each in findings if each.severity != "info"}
    if not rules:
        return NextStep(command, Note.of(NoteKind.NEXT_PROOF))
    return NextStep(command, Note.of(NoteKind.NEXT_FIX))


def _fix(case: Case, path: Path, inputs: Sequence[str], judging: Sequence[str]) -> list[str]:
    built = case.target is not None and case.target.runtime.builder is not None
    target = ["--target", str(case.target)] if built else []
    return ["halfwise", "fix", str(path), *inputs, "--out", "out/", *target, *judging]
