"""Builds in a child process: its end becomes a result or an error."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from halfwise.compiler.build import BuildError, BuildRequest, BuildResult, Failure, Refusal, lines_of
from halfwise.compiler.handover import Report, check_paths, fail, fresh_log, read_build_log, staged
from halfwise.core.child.process import log_tail
from halfwise.core.child.worker import ChildDied, ChildFailed, call
from halfwise.core.errors import MissingBackend, NoRoom
from halfwise.core.whole_files import WholeFiles

__all__ = ["build_in_child"]

BUILD = "halfwise.compiler.native_build:build"


def build_in_child(
    modules: Sequence[str],
    request: BuildRequest,
    *,
    backend: str,
    title: str,
    install: str,
    idle_limit_s: float = math.inf,
) -> BuildResult:
    """Have the first of `modules` that is there build in a child process; its end becomes a result or an error. It is
    ended when it has computed nothing for so long."""
    check_paths(request)
    log_path = request.log_path or fresh_log()
    log_path.write_bytes(b"")
    started = time.monotonic()
    with WholeFiles() as files:
        try:
            report = _reported(modules, staged(request, files), log_path, idle_limit_s)
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


def _reported(modules: Sequence[str], request: BuildRequest, log_path: Path, idle_limit_s: float) -> Report:
    asked = {"modules": list(modules), "request": asdict(request)}
    try:
        answer = call(BUILD, asked, time_limit_s=request.time_limit_s, idle_limit_s=idle_limit_s, log_path=log_path)
    except (ChildFailed, NoRoom) as failed:
        return Report("failed", str(failed))
    data = dict(answer.data)
    data["refusals"] = tuple(Refusal(**refusal) for refusal in data["refusals"])
    data["constrained"] = {node: tuple(layers) for node, layers in data["constrained"].items()}
    for key in ("unmatched", "warnings", "notes"):
        data[key] = tuple(data[key])
    return Report(**data)


def _if_written(path: Path | None) -> Path | None:
    return path if path is not None and path.is_file() else None
