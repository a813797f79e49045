"""Progress on stderr: what is being tried, how far, for how long. Where that is no terminal, a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from threading import Event, Thread
from typing import Any

__all__ = ["Progress", "progress"]

_TITLE = 40  # columns; a file's name may be long
_STEP = 200
_EVERY_S = 10.0  # a line where there is no terminal


class Progress:
    """What a running verb reports to; quiet by itself."""

    def step(self, text: str) -> None:
        """Another thing is being tried."""

    def count(self, done: int, total: int) -> None:
        """So much of the whole is done."""


class _Shown(Progress):
    def __init__(self, bars: Any, task: Any) -> None:
        self._bars, self._task = bars, task
        self._steps, self._step = 0, ""
        self._since = time.monotonic()

    def step(self, text: str) -> None:
        from rich.text import Text

        from halfwise.report.text import safe

        if not _goes_on(self._step, text):
            self._steps, self._step = self._steps + 1, text
        self._bars.update(self._task, doing=Text(f"{self._steps}. {safe(text, _STEP)}"))

    def count(self, done: int, total: int) -> None:
        self._bars.update(self._task, completed=done, total=total, doing=_left(done, total, self._since))


def _goes_on(step: str, text: str) -> bool:
    """Whether it only says how far the same step is, or that it goes on."""
    return bool(step) and (text == step or text.startswith(f"{step}: "))


def _left(done: int, total: int, since: float) -> str:
    """How long the rest takes, if it goes on as it went; empty where nothing tells."""
    passed = time.monotonic() - since
    return f"about {passed / done * (total - done):,.0f} s left" if 0 < done < total and passed >= 1 else ""


class _Lines(Progress):
    """What was last reported, every few seconds: also while a step takes long."""

    def __init__(self, title: str) -> None:
        self._title, self._said = title, ""
        self._steps, self._step = 0, ""
        self._over = Event()
        self._since = time.monotonic()

    def step(self, text: str) -> None:
        if not _goes_on(self._step, text):
            self._steps, self._step = self._steps + 1, text
        self._said = f"{self._steps}. {text}"

    def count(self, done: int, total: int) -> None:
        left = _left(done, total, self._since)
        self._said = f"{done:,} of {total:,}{', ' if left else ''}{left}"

    def write(self) -> None:
        from halfwise.report.text import safe

        while not self._over.wait(_EVERY_S):
            told = f"{safe(self._title, _TITLE)}: {time.monotonic() - self._since:.0f} s"
            line = f"{told}: {safe(self._said, _STEP)}" if self._said else told
            print(f"{line}\n", end="", file=sys.stderr, flush=True)  # at once, for the other thread prints, too

    def end(self) -> None:
        self._over.set()


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """While it lasts, whatever is printed (by a user's own metric, say) goes to stderr: stdout is for the answer."""
    with redirect_stdout(sys.stderr):
        if not sys.stderr.isatty():
            lines = _Lines(title)
            with suppress(RuntimeError):  # the system starts no more threads: nothing is shown
                Thread(target=lines.write, daemon=True).start()
            try:
                yield lines
            finally:
                lines.end()
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
        try:
            with suppress(RuntimeError):  # as above
                bars.start()
            yield _Shown(bars, bars.add_task(safe(title, _TITLE), total=None, doing=""))
        finally:
            bars.stop()
