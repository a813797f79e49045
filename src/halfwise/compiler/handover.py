"""What a builder and its child process hand over: the request, the report, and the log of TensorRT's own lines."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn

from halfwise.compiler.build import BuildError, BuildRequest, Failure, InputProfile, Refusal
from halfwise.core.child.worker import ChildDied
from halfwise.core.errors import InputError
from halfwise.core.whole_files import WholeFiles

__all__ = [
    "REGISTERED",
    "BuildLog",
    "Report",
    "check_paths",
    "fail",
    "fresh_log",
    "read_build_log",
    "request_from",
    "staged",
]

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
    failure: Failure = (
        "timeout" if died.ended.timed_out else "failed" if died.ended.killed or died.ended.idle else "crashed"
    )
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


def _profile(fields: Mapping[str, Any]) -> InputProfile:
    values = fields["values"]
    least, usual, most = (tuple(fields[key]) for key in ("min", "opt", "max"))
    if values is None:
        return InputProfile(least, usual, most)
    low, middle, high = (tuple(row) for row in values)
    return InputProfile(least, usual, most, (low, middle, high))


@lru_cache(maxsize=1)
def _scratch() -> str:
    folder = tempfile.mkdtemp(prefix="halfwise-logs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
