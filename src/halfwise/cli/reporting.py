"""How a verb ends: its answer on stdout, as a screen or as JSON, its exit code, and the files beside it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from halfwise.core.document import Documented
    from halfwise.core.finding import Finding
    from halfwise.report.terminal import Terminal

__all__ = ["answer", "command_line", "write_page", "write_sarif"]


def answer(
    document: Callable[[], Mapping[str, Any]],
    screen: Callable[[Terminal], None],
    *,
    as_json: bool,
    full: bool = False,
    good: bool = True,
) -> None:
    """Print the answer and end the verb: exit code 0 where it is good, else 1."""
    from halfwise.report.terminal import Terminal, write_out

    if as_json:
        write_out(json.dumps(document(), indent=2, allow_nan=False) + "\n")
    else:
        terminal = Terminal(full=full)
        screen(terminal)
        terminal.flush()
    raise typer.Exit(0 if good else 1)


def write_sarif(path: Path | None, findings: Sequence[Finding], artifact: Path) -> None:
    """The findings about this file as SARIF, where it was asked for."""
    if path is None:
        return
    from halfwise.report.files import write
    from halfwise.report.sarif import sarif_text

    write(path, sarif_text(findings, artifact))


def write_page(path: Path | None, kind: str, result: Documented, **more: Any) -> None:
    """The result as a page, where one was asked for."""
    if path is None:
        return
    from halfwise.report.html.sheet import write_sheet

    write_sheet(path, kind, result, command=command_line(), **more)


def command_line() -> str:
    """What was typed, for the report."""
    return " ".join(["halfwise", *map(shlex.quote, sys.argv[1:])])
