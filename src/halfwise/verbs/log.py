"""`log`: what a TensorRT build log says about precision."""

from __future__ import annotations

from pathlib import Path

from halfwise.compiler.buildlog import LogReport, model_names, read_log, with_origins
from halfwise.core.errors import InputError
from halfwise.core.files.identify import not_wanted

__all__ = ["log"]


def log(path: str | Path, model: str | Path | None = None) -> LogReport:
    """Read the log of trtexec, Polygraphy, Torch-TensorRT or the Python builder; its precision messages are findings.

    `model` is the ONNX model that was built: weights that the log warns of are traced to its initializers.
    """
    names = model_names(Path(model)) if model is not None else None
    report = read_log(Path(path))
    if not report.recognised:
        raise InputError(not_wanted(Path(path), "a build log", _foreign(report)))
    return report if names is None else with_origins(report, names)


def _foreign(report: LogReport) -> str:
    what = "no line of it is TensorRT's" if report.lines else "the file is empty"
    return f"{report.source}: {what}; give the whole log of trtexec, Polygraphy, Torch-TensorRT or the Python builder"
