"""Reads the files that belong together into one case: a model, the log and the layers of its engine, inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from halfwise.compiler.buildlog import LogReport, read_log
from halfwise.compiler.layers import EngineLayers, layers_from_log, read_layers
from halfwise.core.errors import InputError
from halfwise.core.files.identify import Identified
from halfwise.core.files.kinds import FileKind
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Target
from halfwise.core.wording import counted
from halfwise.deploy.advisories import target_of_log
from halfwise.deploy.build_command import BuildCommand, command_of_log, commands_in
from halfwise.model.fp32_model import holds_narrow
from halfwise.model.model import Model, load
from halfwise.precision.plan import Plan, read_plan
from halfwise.verbs.doctor.fixed import chosen
from halfwise.verbs.doctor.gather import Material

__all__ = ["Case", "read_case"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Case:
    """What was read. `facts` are, by file, what its content tells in a few words. `planned`: the file of these that the
    plan was made for, wherever the plan says that it lies."""

    material: Material
    model: Model | None
    log: LogReport | None
    layers: EngineLayers | None
    command: BuildCommand | None
    plan: Plan | None
    target: Target | None
    facts: Mapping[Path, str] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    planned: Path | None = None

    def files_of(self, option: str) -> dict[str, Path]:
        """The files that are here of those that an option of the command names, as NAME:FILE[,NAME:FILE]."""
        stated = (self.command.first.get(option) or "") if self.command is not None else ""
        here = {each.path.name: each.path for each in self.material.files}
        pairs = (item.replace("'", "").rpartition(":") for item in stated.split(","))
        found = {name: here.get(re.split(r"[/\\]", file)[-1]) for name, _, file in pairs if name}
        return {name: path for name, path in found.items() if path is not None}


def read_case(material: Material) -> Case:
    """A file that cannot be read is told in a note, and the others are read all the same."""
    facts: dict[Path, str] = {}
    notes: list[Note] = []
    logs = [log for path in material.of(FileKind.BUILD_LOG) if (log := _log(path, facts, notes)) is not None]
    log = logs[-1] if logs else None
    layers = _first(material.of(FileKind.LAYERS), read_layers, notes)
    if layers is None and log is not None and log.structure.engine_lines:
        layers = _read(Path(log.source), lambda path: layers_from_log(log, str(path)), notes)
    command = _command(material, log)
    plan = _first(material.of(FileKind.PLAN), read_plan, notes)
    models = [each for path in material.of(FileKind.ONNX) if (each := _read(path, load, notes)) is not None]
    model = _model(models, command, log, plan, facts, notes)
    planned = next((each.path for each in models if plan is not None and each.sha256 == plan.sha256), None)
    if layers is not None and (path := next(iter(material.of(FileKind.LAYERS)), None)) is not None:
        regions = sum(layer.is_region for layer in layers.layers)
        facts[path] = counted(len(layers.layers), "layer") + (f", {counted(regions, 'region')}" if regions else "")
    target = _target(log, plan, material.files)
    return Case(material, model, log, layers, command, plan, target, facts, tuple(notes), planned)


def _log(path: Path, facts: dict[Path, str], notes: list[Note]) -> LogReport | None:
    log = _read(path, read_log, notes)
    if log is None or not log.recognised:
        return None
    version = f"TensorRT {log.trt_version}" if log.trt_version else "version not stated"
    told = [version, log.device or "", log.precision or "precision not stated", log.constraints or "", log.typing]
    facts[path] = ", ".join(text for text in told if text)
    return log


def _model(
    models: Sequence[Model],
    command: BuildCommand | None,
    log: LogReport | None,
    plan: Plan | None,
    facts: dict[Path, str],
    notes: list[Note],
) -> Model | None:
    """What a plan made of one of them, else the one that the build's command names or whose nodes its log names, else
    one in FP32, and of several the one with the most nodes."""
    for model in models:
        if model.path is not None:
            facts[model.path] = f"{counted(len(model.nodes), 'node')}, opset {model.stored_opset}"
    if not models:
        return None
    built = command.model if command is not None else None
    first = max(
        models, key=lambda model: (_is(model, built), _parsed(log, model), not holds_narrow(model), len(model.nodes))
    )
    examined = chosen(models, plan) or first
    if len(models) > 1:
        notes.append(Note.of(NoteKind.ONE_MODEL_EXAMINED, str(examined.path), count=len(models)))
    return examined


def _parsed(log: LogReport | None, model: Model) -> float:
    """The share of the nodes that the log's parser read which the model has."""
    read = log.structure.nodes.keys() if log is not None else ()
    names = {node.name for node in model.nodes}
    return sum(name in names for name in read) / len(read) if read else 0.0


def _is(model: Model, name: str | None) -> bool:
    return model.path is not None and model.path.name == name


def _command(material: Material, log: LogReport | None) -> BuildCommand | None:
    if log is not None and log.command is not None:
        return command_of_log(log.command)
    for path in material.of(FileKind.BUILD_SCRIPT):
        found = commands_in(path.read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[-1]
    return None


def _target(log: LogReport | None, plan: Plan | None, files: Sequence[Identified]) -> Target | None:
    """What the log states, else the release that built an engine, else the plan's."""
    found = target_of_log(log) if log is not None else None
    if found is not None:
        return found
    built = (Target.of_builder(each.detail) for each in files if each.kind is FileKind.ENGINE)
    stated = next((target for target in built if target is not None), None)
    if stated is not None or plan is None:
        return stated
    try:
        return Target.parse(plan.target)
    except InputError:
        return None


def _first(paths: Sequence[Path], read: Callable[[Path], T], notes: list[Note]) -> T | None:
    """The first that can be read."""
    found = (_read(path, read, notes) for path in paths)
    return next((each for each in found if each is not None), None)


def _read(path: Path, read: Callable[[Path], T], notes: list[Note]) -> T | None:
    try:
        return read(path)
    except InputError as error:
        notes.append(Note.of(NoteKind.FILE_NOT_READ, str(path), why=str(error)))
        return None
