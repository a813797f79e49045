"""Writes the HTML report beside what `fix` has written."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfwise.fix_result import FixResult
    from halfwise.scan import ScanResult

__all__ = ["with_report"]


def with_report(result: FixResult, scanned: ScanResult | None = None) -> FixResult:
    """The result, knowing its report; as it is where nothing was written."""
    if result.typed is None:
        return result
    from halfwise.output_shares import shares_by_output
    from halfwise.report.html import write_report
    from halfwise.scan import scan

    stem = result.typed.path.name.removesuffix(".fp16.onnx")
    path = result.typed.path.with_name(f"{stem}.report.html")
    command = " ".join(["halfwise", *map(shlex.quote, sys.argv[1:])])
    written = write_report(
        result, path, scan=scanned or scan(result.model), command=command, by_output=shares_by_output(result)
    )
    return replace(result, report=written)
