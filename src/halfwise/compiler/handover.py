"""The hand-over between a builder and its child process: the request goes in, the report and the log come out.

The log is a file of lines as TensorRT's own tools print them.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn

from halfwise.compiler.build import BuildError, BuildRequest, BuildResult, Failure, InputProfile, Refusal, lines_of
from halfwise.core.child.process import log_tail
from halfwise.core.child.worker import ChildDied, ChildFailed, call
from halfwise.core.errors import InputError, MissingBackend
from halfwise.core.whole_files import WholeFiles

__all__ = [
    "REGISTERED",
    "BuildLog",
    "Report",
    "build_in_child",
    "check_paths",
    "fail",
    "fresh_log",
    "read_build_log",
    "request_from",
    "staged",
]

BUILD = "halfwise.compiler.native_build:build"
REGISTERED = re.compile(r"Registering layer: (?P<layer>.+) for ONNX node: (?P<node>.+)$")
_PREFIX = re.compile(r"^(?:\[[^\]]*\] ){0,3}\[TRT\] |^\[\d[^\]]*\] \[[VIWEF]\] ")
_LISTS = ("Layers:", "Engine Layer Information:")


@dataclass(frozen=True)
class Report:
    """What the child says of a build."""

    status: Literal["built", "refused", "failed"]
    message: str = ""
    version: str = ""
    title: str = ""
    engine_bytes: int = 0
    refusals: tuple[Refusal, ...] = ()
    constrained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildLog:
    """What a build needs from its log: the kernels that were compiled, and the layers of every ONNX node."""

    kernels: tuple[str, ...]
    node_layers: Mapping[str, tuple[str, ...]]


def build_in_child(
    modules: Sequence[str], request: BuildRequest, *, backend: str, title: str, install: str
) -> BuildResult:
    """Have the first of `modules` that is there build in a child process; its end becomes a result or an error."""
    check_paths(request)
    log_path = request.log_path or fresh_log()
    log_path.write_bytes(b"")
    started = time.monotonic()
    with WholeFiles() as files:
        try:
            report = _reported(modules, staged(request, files), log_path)
        except ChildDied as died:
            fail(title, request, log_path, died)
        except MissingBackend as error:
            raise MissingBackend(f"{title} is not usable here: {error}; install it with: {install}") from error
        if report.status != "built":
            _fail_as_reported(report, title, request, log_path)
    seconds = time.monotonic() - started
    log = read_build_log(lines_of(log_path))
    return BuildResult(
        backend=backend,
        version=report.version,
        seconds=seconds,
        log_path=log_path,
        engine_path=request.engine_path,
        engine_bytes=report.engine_bytes,
        kernels=log.kernels,
        node_layers=log.node_layers,
        layer_info_path=_if_written(request.layer_info_path),
        constrained=report.constrained,
        unmatched=report.unmatched,
        warnings=report.warnings,
        notes=report.notes,
    )


def request_from(document: Mapping[str, Any]) -> BuildRequest:
    data = dict(document)
    for key in ("model_path", "engine_path", "log_path", "layer_info_path"):
        data[key] = None if data[key] is None else Path(data[key])
    for key in ("compute_capabilities", "fp32_nodes", "arguments"):
        data[key] = tuple(data[key])
    data["profiles"] = {name: _profile(fields) for name, fields in data["profiles"].items()}
    return BuildRequest(**data)


def read_build_log(lines: Iterable[str]) -> BuildLog:
    """Collect the layers of every ONNX node and the last list of compiled layers; the lines may come from a stream.

    A compiler that weighs several strategies prints a list for each; the last one is the engine's.
    """
    node_layers: dict[str, list[str]] = {}
    kernels: list[str] = []
    listing = False
    for line in lines:
        if listing and line and not _PREFIX.match(line):
            kernels.append(line)
            continue
        listing = False
        if line.endswith(_LISTS) and _PREFIX.sub("", line).strip() in _LISTS:
            listing, kernels = True, []
        elif found := REGISTERED.search(line):
            node_layers.setdefault(found["node"], []).append(found["layer"])
    return BuildLog(tuple(kernels), {node: tuple(layers) for node, layers in node_layers.items()})


def check_paths(request: BuildRequest) -> None:
    if not request.model_path.is_file():
        raise InputError(f"no such model: {request.model_path}")
    for path in (request.engine_path, request.log_path, request.layer_info_path):
        if path is not None and not path.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {path.parent}")


def fail(title: str, request: BuildRequest, log_path: Path, died: ChildDied) -> NoReturn:
    """Raise the one error for a build that ended without a report, with the end of its log."""
    kept = f" (whole log: {request.log_path})" if request.log_path else ""
    message = f"{title} {died.tell(f'building {request.model_path}')}{kept}"
    failure: Failure = "timeout" if died.ended.timed_out else "crashed"
    raise BuildError(message, failure=failure, log_path=log_path, log_tail=died.tail)


def fresh_log() -> Path:
    """A log file for a caller who named none; it lives until this process ends."""
    number, name = tempfile.mkstemp(prefix="build-", suffix=".log", dir=_scratch())
    os.close(number)
    return Path(name)


def staged(request: BuildRequest, files: WholeFiles) -> BuildRequest:
    """The same request, with the places where the compiler is to write meanwhile."""
    engine, layers = request.engine_path, request.layer_info_path
    if layers is not None:
        files.drop(layers)  # it may be of another engine
    return replace(
        request,
        engine_path=engine and files.place(engine),
        layer_info_path=layers and files.place(layers),
    )


def _fail_as_reported(report: Report, title: str, request: BuildRequest, log_path: Path) -> NoReturn:
    kept = f" (whole log: {request.log_path})" if request.log_path else ""
    verb = "refuses" if report.status == "refused" else "could not build"
    failure: Failure = "refused" if report.status == "refused" else "failed"
    raise BuildError(
        f"{report.title or title} {verb} {request.model_path}: {report.message}{kept}",
        failure=failure,
        log_path=log_path,
        log_tail=log_tail(log_path),
        refusals=report.refusals,
    )


def _reported(modules: Sequence[str], request: BuildRequest, log_path: Path) -> Report:
    asked = {"modules": list(modules), "request": asdict(request)}
    try:
        answer = call(BUILD, asked, time_limit_s=request.time_limit_s, log_path=log_path)
    except ChildFailed as failed:
        return Report("failed", str(failed))
    data = dict(answer.data)
    data["refusals"] = tuple(Refusal(**refusal) for refusal in data["refusals"])
    data["constrained"] = {node: tuple(layers) for node, layers in data["constrained"].items()}
    for key in ("unmatched", "warnings", "notes"):
        data[key] = tuple(data[key])
    return Report(**data)


def _profile(fields: Mapping[str, Any]) -> InputProfile:
    values = fields["values"]
    least, usual, most = (tuple(fields[key]) for key in ("min", "opt", "max"))
    if values is None:
        return InputProfile(least, usual, most)
    low, middle, high = (tuple(row) for row in values)
    return InputProfile(least, usual, most, (low, middle, high))


def _if_written(path: Path | None) -> Path | None:
    return path if path is not None and path.is_file() else None


@lru_cache(maxsize=1)
def _scratch() -> str:
    folder = tempfile.mkdtemp(prefix="halfwise-logs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
