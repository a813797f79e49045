"""`log`: what a TensorRT build log says about precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from halfwise.compiler.buildlog import LogReport, model_names, read_log, with_origins
from halfwise.core.errors import InputError
from halfwise.core.files.identify import not_wanted
from halfwise.core.finding import Finding
from halfwise.deploy.advisories import target_of_log
from halfwise.deploy.build_command import command_of_log, lint

__all__ = ["log"]


def log(path: str | Path, model: str | Path | None = None) -> LogReport:
    """Read the log of trtexec, Polygraphy, Torch-TensorRT or the Python builder; its precision messages are findings.

    `model` is the ONNX model that was built: weights that the log warns of are traced to its initializers, and names
    in the build's flags are looked up among its nodes where the log lists no layers.
    """
    names = model_names(Path(model)) if model is not None else None
    report = read_log(Path(path))
    if not report.recognised:
        raise InputError(not_wanted(Path(path), "a build log", _foreign(report)))
    report = report if names is None else with_origins(report, names)
    layers = tuple(report.structure.registered) or (() if names is None else tuple(names.nodes))
    return replace(report, findings=(*_of_its_command(report, layers), *report.findings))


def _of_its_command(report: LogReport, layers: Sequence[str]) -> tuple[Finding, ...]:
    """What in the precision flags of the build has no effect; names are looked up where layers are known."""
    if report.command is None:
        return ()
    target = target_of_log(report)
    span = target.span if target is not None else None
    if span is None:
        return ()
    version = target.title if target is not None else ""
    return tuple(lint(command_of_log(report.command), layers, span, version))


def _foreign(report: LogReport) -> str:
    what = "no line of it is TensorRT's" if report.lines else "the file is empty"
    return f"{report.source}: {what}; give the whole log of trtexec, Polygraphy, Torch-TensorRT or the Python builder"
