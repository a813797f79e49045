"""Builds an ONNX model with `trtexec`, for a machine that has TensorRT's tool but not its Python module.

Which options a `trtexec` knows is read from its own help text, so one command serves 8.4 to 11.
Limits: never run with the real tool; precisions are given as layer names in `arguments` (ONNX nodes cannot be resolved
without the parser), and the values of a shape input must be given there too.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from halfwise.compiler.build import (
    BuildError,
    BuildRequest,
    BuildResult,
    InputProfile,
    Profiles,
    Shape,
    Typing,
    lines_of,
    normalised,
)
from halfwise.compiler.handover import check_paths, fail, fresh_log, read_build_log, staged
from halfwise.compiler.native_build import clean_message
from halfwise.core.child.process import log_tail, run
from halfwise.core.child.worker import ChildDied
from halfwise.core.errors import InputError, MissingBackend
from halfwise.core.whole_files import WholeFiles

__all__ = ["available", "build", "build_request", "command", "version_of"]

_HELP_LIMIT_S = 60.0
_OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9]*")
_VERSION = re.compile(r"\[TensorRT v(\d+)\]")
_SAID = re.compile(r"^(?:\[\d[^\]]*\] )?(?:\[TRT\] )?\[(?P<severity>[EFW])\] (?:\[TRT\] )?(?P<message>.*)$")
_MOST_KEPT = 40


def available(executable: str = "trtexec") -> bool:
    return shutil.which(executable) is not None


def build(
    model_path: str | PathLike[str],
    *,
    profiles: Profiles | None = None,
    time_limit_s: float = 600.0,
    engine_path: str | PathLike[str] | None = None,
    log_path: str | PathLike[str] | None = None,
    layer_info_path: str | PathLike[str] | None = None,
    typing: Typing = "strong",
    tf32: bool = True,
    arguments: Sequence[str] = (),
    executable: str = "trtexec",
) -> BuildResult:
    """Build `model_path` by one `trtexec` run that builds and does not infer; as `tensorrt.build`, and further:

    `arguments` are handed on as they are, such as `--layerPrecisions=...`; `executable` names another `trtexec`.
    """
    request = BuildRequest(
        model_path=Path(model_path),
        profiles=normalised(profiles),
        time_limit_s=time_limit_s,
        engine_path=None if engine_path is None else Path(engine_path),
        log_path=None if log_path is None else Path(log_path),
        layer_info_path=None if layer_info_path is None else Path(layer_info_path),
        typing=typing,
        tf32=tf32,
        arguments=tuple(arguments),
    )
    return build_request(request, executable=executable)


def build_request(request: BuildRequest, *, executable: str = "trtexec") -> BuildResult:
    check_paths(request)
    found = shutil.which(executable)
    if found is None:
        raise MissingBackend(f"{executable} is not on the PATH; it comes with TensorRT, or give its full path")
    open_inputs = _open_inputs(request.model_path) if request.profiles else ()
    options = _options(found)
    log_path = request.log_path or fresh_log()
    log_path.write_bytes(b"")
    with WholeFiles() as files:
        line = command(found, staged(request, files), options, open_inputs)
        ended = run(line, log_path=log_path, time_limit_s=request.time_limit_s)
        errors, warnings, version = _what_it_said(lines_of(log_path))
        if not ended.ok:
            if ended.timed_out or not errors:
                fail("trtexec", request, log_path, ChildDied(ended, log_tail(log_path)))
            told = "; ".join(errors[:3])
            raise BuildError(
                f"trtexec {version} could not build {request.model_path}: {told}",
                failure="failed",
                log_path=log_path,
                log_tail=log_tail(log_path),
            )
    log = read_build_log(lines_of(log_path))
    return BuildResult(
        backend="trtexec",
        version=version,
        seconds=ended.seconds,
        log_path=log_path,
        engine_path=request.engine_path,
        engine_bytes=request.engine_path.stat().st_size if request.engine_path is not None else 0,
        kernels=log.kernels,
        node_layers=log.node_layers,
        layer_info_path=request.layer_info_path,
        warnings=warnings,
        notes=("built for the GPU of this machine; the engine was not run",),
    )


def command(
    executable: str, request: BuildRequest, options: frozenset[str], open_inputs: Sequence[str] = ()
) -> list[str]:
    """The command of a build, for a `trtexec` that knows `options`; `open_inputs` are those of open shape."""
    if request.fp32_nodes:
        raise InputError("trtexec takes layer names, not ONNX nodes: give --layerPrecisions in the arguments")
    if request.compute_capabilities:
        raise InputError("trtexec builds for the GPU of this machine; compute capabilities cannot be chosen")
    line = [executable, f"--onnx={request.model_path}", "--verbose", "--profilingVerbosity=detailed"]
    # 8.4 and 8.5 say it the old way.
    line.append("--skipInference" if "--skipInference" in options else "--buildOnly")
    line += _typing_option(request, options)
    if not request.tf32:
        line.append("--noTF32")
    if request.engine_path is not None:
        line.append(f"--saveEngine={request.engine_path}")
    if request.layer_info_path is not None:
        line.append(f"--exportLayerInfo={request.layer_info_path}")
    line += _shape_options(request.profiles, open_inputs)
    return line + [argument for argument in request.arguments if argument not in line]


def version_of(banner_number: str) -> str:
    """The version in trtexec's banner: v101601 is 10.16.1, and v8601 is 8.6.1."""
    number, step = int(banner_number), 10_000 if len(banner_number) > 5 else 1000
    return f"{number // step}.{number % step // 100}.{number % 100}"


def _typing_option(request: BuildRequest, options: frozenset[str]) -> list[str]:
    weak = "--fp16" in options
    if request.typing == "weak":
        if not weak:
            raise InputError("this trtexec knows strong typing only; give it a typed model instead of precision flags")
        return ["--fp16"]
    if weak and "--stronglyTyped" not in options:
        raise InputError("this trtexec has no strong typing (that came with 9.1); ask for weak typing")
    return ["--stronglyTyped"] if weak else []


def _shape_options(profiles: Mapping[str, InputProfile], open_inputs: Sequence[str]) -> list[str]:
    """trtexec refuses shapes for an input that is not open, so only the open ones are given."""
    wanted = {name: profiles[name] for name in open_inputs if name in profiles}
    for name in wanted:
        if "," in name or "'" in name:
            raise InputError(f"input {name!r} cannot be named to trtexec, which splits at commas and quotes: rename it")
    if not wanted:
        return []
    ranges = {
        "--minShapes": {name: profile.min for name, profile in wanted.items()},
        "--optShapes": {name: profile.opt for name, profile in wanted.items()},
        "--maxShapes": {name: profile.max for name, profile in wanted.items()},
    }
    return [f"{option}={_spelled(shapes)}" for option, shapes in ranges.items()]


def _spelled(shapes: Mapping[str, Shape]) -> str:
    return ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())


def _open_inputs(model_path: Path) -> tuple[str, ...]:
    import onnx

    try:
        graph = onnx.load(str(model_path), load_external_data=False).graph
    except Exception as error:
        raise InputError(f"{model_path} is not an ONNX model: {error}") from error
    stored = {tensor.name for tensor in graph.initializer}
    return tuple(
        value.name
        for value in graph.input
        if value.name not in stored and any(not size.HasField("dim_value") for size in value.type.tensor_type.shape.dim)
    )


def _options(executable: str) -> frozenset[str]:
    with tempfile.TemporaryDirectory(prefix="halfwise-trtexec-") as folder:
        said = Path(folder, "help.txt")
        said.touch()
        ended = run([executable, "--help"], log_path=said, time_limit_s=_HELP_LIMIT_S)
        options = frozenset(_OPTION.findall(said.read_text(encoding="utf-8", errors="replace")))
    if "--onnx" not in options:
        raise MissingBackend(f"{executable} --help {ended.describe()} and names no --onnx option; is it trtexec?")
    return options


def _what_it_said(lines: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    errors: dict[str, None] = {}
    warnings: dict[str, None] = {}
    version = ""
    for line in lines:
        if not version and (banner := _VERSION.search(line)):
            version = version_of(banner[1])
        if (said := _SAID.match(line)) and said["message"]:
            kept = warnings if said["severity"] == "W" else errors
            if len(kept) < _MOST_KEPT:
                kept[clean_message(said["message"])] = None
    return tuple(errors), tuple(warnings), version
