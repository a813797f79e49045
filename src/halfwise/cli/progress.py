"""Progress on stderr, where that is a terminal: what is being tried, how far, for how long. Else nothing at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

__all__ = ["Progress", "progress"]

_TITLE = 40  # columns; a file's name may be long
_STEP = 200


class Progress:
    """What a running verb reports to; quiet by itself."""

    def step(self, text: str) -> None:
        """Another thing is being tried."""

    def count(self, done: int, total: int) -> None:
        """So much of the whole is done."""


class _Shown(Progress):
    def __init__(self, bars: Any, task: Any) -> None:
        self._bars, self._task = bars, task
        self._steps = 0

    def step(self, text: str) -> None:
        from rich.text import Text

        from halfwise.report.text import safe

        self._steps += 1
        self._bars.update(self._task, doing=Text(f"{self._steps}. {safe(text, _STEP)}"))

    def count(self, done: int, total: int) -> None:
        self._bars.update(self._task, completed=done, total=total)


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """While it lasts, whatever is printed (by a user's own metric, say) goes to stderr: stdout is for the answer."""
    with redirect_stdout(sys.stderr):
        if not sys.stderr.isatty():
            yield Progress()
            return
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars
        from rich.table import Column

        from halfwise.report.text import safe

        bars = Bars(
            SpinnerColumn(style="cyan"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[doing]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            console=Console(stderr=True, highlight=False),
            transient=True,
            redirect_stdout=False,
        )
        with bars:
            yield _Shown(bars, bars.add_task(safe(title, _TITLE), total=None, doing=""))
