"""`halfwise.fix`: the main job with its report, which is written beside the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import ParamSpec

from halfwise.core.errors import InputError
from halfwise.report.html.write import write_report
from halfwise.verbs.fix.fix import fix as main_job
from halfwise.verbs.fix.output_shares import shares_by_output
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.scan import ScanResult, scan

__all__ = ["fix", "with_report"]

_Asked = ParamSpec("_Asked")


def with_report(result: FixResult, scanned: ScanResult | None = None, command: str = "") -> FixResult:
    """The result, knowing its report; as it is where no model was written. `command` is the line that made it."""
    if result.typed is None:
        return result
    stem = result.typed.path.name.removesuffix(".fp16.onnx")
    path = result.typed.path.with_name(f"{stem}.report.html")
    if not result.typed.path.exists():
        raise InputError(f"{result.typed.path} is gone: something removed it after it was written; run fix again")
    found = scanned or scan(result.model)
    written = write_report(result, path, scan=found, command=command, by_output=shares_by_output(result))
    return replace(result, files=replace(result.files, report=written))


def _reporting(job: Callable[_Asked, FixResult]) -> Callable[_Asked, FixResult]:
    @wraps(job)
    def reported(*args: _Asked.args, **kwargs: _Asked.kwargs) -> FixResult:
        result = job(*args, **kwargs)
        if callable(notify := kwargs.get("notify")):
            notify("writing the report")
        return with_report(result)

    return reported


fix = _reporting(main_job)
