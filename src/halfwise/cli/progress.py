"""Progress on stderr: what is being tried, how far, for how long. Where that is no terminal, a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from threading import Event, Thread
from typing import Any

from halfwise.core.told import Stand, TimeLeft, Told

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


class _Doing(Progress):
    """What is being done, as it stands whenever it is read: the time that is left goes down."""

    def __init__(self) -> None:
        self._steps, self._stand = 0, Stand()
        self._since = time.monotonic()

    def step(self, text: str) -> None:
        stand = Told.stand_of(text)
        if stand.stays:
            self._keep(text)
            return
        self._steps += stand.step != self._stand.step
        self._stand = stand

    def _keep(self, text: str) -> None:
        """Show it at once, above what is being done."""

    def count(self, done: int, total: int) -> None:
        now = time.monotonic()
        passed = now - self._since
        left = TimeLeft(passed / done * (total - done), now) if 0 < done < total and passed >= 1 else None
        self._stand = Stand(part=f"{done:,} of {total:,}", left=left)

    def __str__(self) -> str:
        from halfwise.report.text import safe

        number = f"{self._steps}. " if self._stand.step else ""
        return safe(f"{number}{self._stand.text(time.monotonic())}", _STEP)


class _Shown(_Doing):
    def __init__(self, bars: Any, task: Any) -> None:
        super().__init__()
        self._bars, self._task = bars, task
        bars.update(task, doing=self)

    def _keep(self, text: str) -> None:
        from halfwise.report.text import brief

        self._bars.console.print(brief(text), markup=False)

    def count(self, done: int, total: int) -> None:
        super().count(done, total)
        self._bars.update(self._task, completed=done, total=total)


class _Lines(_Doing):
    """What was last reported, every few seconds: also while a step takes long."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title, self._over = title, Event()
        self._writer = Thread(target=self._write, daemon=True)

    def start(self) -> None:
        with suppress(RuntimeError):  # the system starts no more threads: nothing is shown
            self._writer.start()

    def _write(self) -> None:
        from halfwise.report.text import safe

        while not self._over.wait(_EVERY_S):
            told = f"{safe(self._title, _TITLE)}: {time.monotonic() - self._since:.0f} s"
            doing = str(self)
            line = f"{told}: {doing}" if doing else told
            print(f"{line}\n", end="", file=sys.stderr, flush=True)  # at once, for the other thread prints, too

    def _keep(self, text: str) -> None:
        from halfwise.report.text import brief, safe

        print(f"{safe(self._title, _TITLE)}: {brief(text)}\n", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        self._over.set()
        if self._writer.ident is not None:  # it was started
            self._writer.join()  # no line after the answer


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """While it lasts, whatever is printed (by a user's own metric, say) goes to stderr: stdout is for the answer."""
    with redirect_stdout(sys.stderr):
        if not sys.stderr.isatty():
            lines = _Lines(title)
            lines.start()
            try:
                yield lines
            finally:
                lines.end()
            return
        from rich.console import Console

        from halfwise.cli.bars import Bars
        from halfwise.report.text import safe

        bars = Bars(Console(stderr=True, highlight=False))
        try:
            with suppress(RuntimeError):  # as above
                bars.start()
            yield _Shown(bars, bars.add_task(safe(title, _TITLE), total=None, doing=""))
        finally:
            bars.stop()
