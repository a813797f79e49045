"""`halfwise compare`: two results side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfwise.cli.options import Full, Json
from halfwise.cli.reporting import answer

__all__ = ["command"]


def command(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A.json",
            help="Before: a document that fix, scan, trace or audit printed with --json, a plan, or what prove wrote.",
        ),
    ],
    b: Annotated[Path, typer.Argument(metavar="B.json", help="After: another document of the same kind.")],
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Compare two results: two models, versions, targets or plans. Shows what became better and what worse."""
    from halfwise.report.compare import show_comparison
    from halfwise.verbs.compare import compare

    result = compare(a, b)
    answer(result.to_json, lambda screen: show_comparison(screen, result), as_json=as_json, full=full)
