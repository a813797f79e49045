"""What a fleet is doing, on stderr: a live table on a terminal, a line for each job that ends elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from halfwise.core.wording import counted
from halfwise.fleet.jobs import Job
from halfwise.fleet.processes import Place
from halfwise.fleet.run import Watcher
from halfwise.fleet.store import Result
from halfwise.report.text import safe

__all__ = ["watching"]

_NAME = 60


class _Lines(Watcher):
    def __init__(self, title: str) -> None:
        self._title = title
        self._done = self._total = 0

    def begin(self, total: int, reused: int) -> None:
        self._done, self._total = reused, total
        print(f"{self._title}: {counted(total, 'job')}, {reused} done before", file=sys.stderr, flush=True)

    def ended(self, job: Job, result: Result) -> None:
        self._done += 1
        words = f"{self._done} of {self._total}: {safe(job.title, _NAME)}: {result.state}, {result.seconds:.1f} s"
        print(f"{words}{f': {safe(result.why, 200)}' if result.why else ''}", file=sys.stderr, flush=True)


class _Table(Watcher):
    def __init__(self, live: Any) -> None:
        self._live = live
        self._done = self._total = 0
        self._spent: list[float] = []
        self._bad = 0

    def begin(self, total: int, reused: int) -> None:
        self._done, self._total = reused, total

    def ended(self, job: Job, result: Result) -> None:
        self._done += 1
        self._spent.append(result.seconds)
        self._bad += not result.good

    def running(self, jobs: Sequence[tuple[Job, Place]], waiting: int) -> None:
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0))
        for title in ("running", "seconds", "memory"):
            table.add_column(title, justify="left" if title == "running" else "right")
        now = time.monotonic()
        for job, place in jobs:
            table.add_row(safe(job.title, _NAME), f"{now - place.since:.0f}", f"{place.peak_bytes / 1e6:.0f} MB")
        left = f", about {self._left(jobs, waiting, now):.0f} s to go" if self._spent else ""
        bad = f", {self._bad} not good" if self._bad else ""
        table.caption = f"{self._done} of {self._total} done{bad}, {waiting} waiting{left}"
        table.caption_justify = "left"
        self._live.update(table)

    def _left(self, jobs: Sequence[tuple[Job, Place]], waiting: int, now: float) -> float:
        """By the mean of those that ended, with as many at once as now."""
        mean = sum(self._spent) / len(self._spent)
        begun = sum(max(0.0, mean - (now - place.since)) for _, place in jobs)
        return (begun + waiting * mean) / max(1, len(jobs))


@contextmanager
def watching(title: str) -> Iterator[Watcher]:
    if not sys.stderr.isatty():
        yield _Lines(title)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True, highlight=False), transient=True, refresh_per_second=4) as live:
        yield _Table(live)
