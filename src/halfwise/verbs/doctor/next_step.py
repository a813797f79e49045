"""The one command to run next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from halfwise.core.files.identify import Identified
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding
from halfwise.core.notes import Note, NoteKind
from halfwise.model.fp32_model import holds_narrow
from halfwise.model.known_operators import not_run
from halfwise.model.model import Model
from halfwise.model.runnable_part import part_command
from halfwise.verbs.doctor.case import Case
from halfwise.verbs.doctor.document import NextStep
from halfwise.verbs.doctor.measured import Measured

__all__ = ["next_step"]

_MODELS = (
    FileKind.CHECKPOINT, FileKind.TORCHSCRIPT, FileKind.TORCH_EXPORT, FileKind.SAFETENSORS, FileKind.TFLITE,
    FileKind.SAVED_MODEL, FileKind.FROZEN_GRAPH, FileKind.HDF5, FileKind.KERAS, FileKind.ZIPPED_MODEL,
    FileKind.LFS_POINTER, FileKind.HTML, FileKind.ARCHIVE, FileKind.CUT_OFF, FileKind.ORT_FORMAT, FileKind.OPENVINO,
    FileKind.GGUF, FileKind.PICKLE, FileKind.SHARD_INDEX, FileKind.EXTERNAL_DATA, FileKind.CUT_OFF_ONNX,
)  # fmt: skip
_FP16_IS_FINE = {"HW614"}


def next_step(case: Case, measured: Measured | None, findings: Sequence[Finding]) -> NextStep:
    """Of a model the fix, with what is known of inputs, target and tolerance; of a fixed one the proof; without one the
    way to it."""
    if case.model is not None and case.model.path is not None:
        if _is_fixed(case):
            return _with_original(case, case.model.path)
        if measured is None and (cut := _cut(case.model, case.model.path)) is not None:
            return cut
        return _with_model(case, case.model.path, measured, findings)
    held = next((each for each in case.material.files if each.kind in _MODELS), None)
    if held is not None:
        return NextStep(held.way, Note.of(NoteKind.NEXT_ONNX, held.name))
    damaged = next((each for each in case.material.files if each.path.suffix == ".onnx"), None)
    if damaged is not None:
        return NextStep("export or copy the model again", Note.of(NoteKind.NEXT_ONNX, str(damaged.path)))
    if case.layers is None and (engine := _engine(case)) is not None:
        command = ["trtexec", f"--loadEngine={engine.path}", "--exportLayerInfo=layers.json", "--skipInference"]
        return NextStep(shlex.join(command), Note.of(NoteKind.NEXT_LAYERS))
    given = [str(each.path) for each in case.material.files]
    return NextStep(shlex.join(["halfwise", "doctor", "MODEL.onnx", *given]), Note.of(NoteKind.NEXT_MODEL))


def _cut(model: Model, path: Path) -> NextStep | None:
    """The part in front of the first node that nothing here runs; None where there is none, or where the file's graph
    does not name what it reads: in a body, or in a function."""
    node = next(iter(not_run(model.nodes)), None)
    words = () if node is None else part_command(model, path, node)
    if node is None or not words:
        return None
    return NextStep(shlex.join(words), Note.of(NoteKind.NEXT_CUT, node.name or "", op=node.op_type))


def _is_fixed(case: Case) -> bool:
    """Whether the model is what the plan beside it made of another."""
    model, plan = case.model, case.plan
    return plan is not None and model is not None and holds_narrow(model) and plan.sha256 not in ("", model.sha256)


def _with_original(case: Case, path: Path) -> NextStep:
    """By the name that the plan has for it, most often of a file one folder up."""
    given = Path(case.plan.model if case.plan is not None else "")
    places = (given, path.parent / given.name, Path(os.path.normpath(path.parent / "..")) / given.name)
    original = next((place for place in places if place.is_file()), given)
    words = ["halfwise", "verify", str(original), str(path), *case.material.options]
    return NextStep(shlex.join(words), Note.of(NoteKind.NEXT_VERIFY, str(original)))


def _engine(case: Case) -> Identified | None:
    return next((each for each in case.material.files if each.kind is FileKind.ENGINE), None)


def _with_model(case: Case, path: Path, measured: Measured | None, findings: Sequence[Finding]) -> NextStep:
    options = case.material.options if measured is not None or case.material.samples else []
    words = ["halfwise", "fix", str(path), *(options or ["--inputs", "samples/"]), "--out", "out/"]
    if case.target is not None and case.target.runtime.builder is not None:
        words += ["--target", str(case.target)]
    for name in measured.coarse if measured is not None else ():
        words += ["--tol", f"{name}:max_abs<=0.5"]
    command = shlex.join(words)
    if not options:
        return NextStep(command, Note.of(NoteKind.NEXT_INPUTS))
    rules = {each.rule for each in findings if each.severity != "info"}
    if not rules:
        return NextStep(command, Note.of(NoteKind.NEXT_PROOF))
    return NextStep(command, Note.of(NoteKind.NEXT_FIX))
