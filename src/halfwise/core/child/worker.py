"""Has functions run in a child process: a crash, a hang or a lack of memory there costs an answer and no more.

The request goes in and the answer comes out as JSON and .npz files. The child outlives a failure of a function, so one
worker can answer many requests; where the child itself ends, the worker is of no more use.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty
from types import TracebackType
from typing import Any

from halfwise.core.child import process
from halfwise.core.child.arrays import Arrays, read_arrays, write_arrays
from halfwise.core.child.folders import LOG, ChildFolder
from halfwise.core.child.idle import Idle
from halfwise.core.child.lines import Lines, python_command
from halfwise.core.child.process import Ended
from halfwise.core.child.serve import Answer, serve
from halfwise.core.errors import HalfwiseError, MissingBackend, NoRoom

__all__ = ["ChildDied", "ChildFailed", "Worker", "call"]

_LOOKS = 10  # at what a child computes, within the time that it may compute nothing


class ChildDied(HalfwiseError):
    """The child ended without an answer: a crash, a lack of memory, or the time limit."""

    def __init__(self, ended: Ended, tail: tuple[str, ...]) -> None:
        super().__init__(f"the child process {ended.describe()}")
        self.ended = ended
        self.tail = tail

    def tell(self, doing: str) -> str:
        return self.ended.tell(doing, self.tail)


class ChildFailed(HalfwiseError):
    """The function raised; the text is the exception's. The child lives."""


class Worker:
    """A child that answers requests, one at a time, until it is closed.

    What it prints is appended to `log_path`, if that is given; `environment` is added to the parent's own. `preload`
    are modules that it imports while nobody waits; a process that has loaded them itself is copied where that is safe.
    """

    def __init__(
        self,
        log_path: Path | None = None,
        environment: Mapping[str, str] | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        self._folder = ChildFolder()
        self._log_path = log_path or self._folder.path / LOG
        try:
            loaded = bool(preload) and environment is None and all(each in sys.modules for each in preload)
            life = serve if loaded else None
            self._lines = Lines(python_command("serve:serve", preload), self._log_path, environment, life)
        except BaseException:
            self._folder.cleanup()
            raise

    @property
    def alive(self) -> bool:
        return self._lines.alive

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._folder.cleanup()

    def ask(
        self,
        function: str,
        data: Mapping[str, Any],
        arrays: Sequence[Arrays] = (),
        *,
        time_limit_s: float,
        idle_limit_s: float = math.inf,
        notify: Callable[[str], None] = lambda text: None,
    ) -> Answer:
        """What `function`, such as "package.module:name", answers to a `Request`; `notify` gets its progress. It is
        ended, too, when it has computed nothing for `idle_limit_s`.

        Raises ChildDied, ChildFailed, or MissingBackend where the function did, and NoRoom where a disk is full. No
        child outlives an interruption.
        """
        process.check_limit(time_limit_s)
        with ChildFolder() as folder:  # of its own: temporary files are swept away after days
            for index, each in enumerate(arrays):
                write_arrays(folder / f"in-{index}.npz", each)
            request = {"function": function, "data": data, "arrays": len(arrays), "time_limit_s": time_limit_s}
            (folder / "request.json").write_text(json.dumps(request, default=str), encoding="utf-8")
            try:
                event = self._ask(folder, time_limit_s, idle_limit_s, notify)
            except BaseException:
                process.end(self._lines.child)
                raise
            if "missing" in event:
                raise MissingBackend(event["missing"])
            if "full" in event:
                raise NoRoom(event["full"])
            if "failed" in event:
                raise ChildFailed(event["failed"])
            read = tuple(read_arrays(folder / f"out-{index}.npz") for index in range(event["arrays"]))
        return Answer(event["answer"], read)

    def _ask(
        self, folder: Path, time_limit_s: float, idle_limit_s: float, notify: Callable[[str], None]
    ) -> dict[str, Any]:
        started, idle = time.monotonic(), Idle.now(self._lines.child.pid)
        self._lines.send(str(folder))
        while True:
            left = max(0.0, started + time_limit_s - time.monotonic())
            try:
                event = self._lines.receive(min(left, idle_limit_s / _LOOKS))
            except Empty:
                idle = idle.still()
                waits = idle.seconds >= idle_limit_s
                if not waits and time.monotonic() < started + time_limit_s:
                    continue
                raise self._died(started, time_limit_s, timed_out=not waits, idle=waits) from None
            if event is None:
                raise self._died(started, time_limit_s, timed_out=False)
            if "progress" in event:
                notify(event["progress"])
            elif event:
                return event

    def _died(self, started: float, time_limit_s: float, *, timed_out: bool, idle: bool = False) -> ChildDied:
        if not timed_out and not idle:
            try:
                self._lines.child.wait(timeout=max(0.0, started + time_limit_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                timed_out = True
        process.end(self._lines.child)
        ended = Ended(self._lines.child.wait(), time.monotonic() - started, time_limit_s, timed_out, idle)
        return ChildDied(ended, process.log_tail(self._log_path))


def call(
    function: str,
    data: Mapping[str, Any],
    arrays: Sequence[Arrays] = (),
    *,
    time_limit_s: float,
    idle_limit_s: float = math.inf,
    log_path: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """One request to a child of its own."""
    process.check_limit(time_limit_s)
    with Worker(log_path, environment) as worker:
        return worker.ask(function, data, arrays, time_limit_s=time_limit_s, idle_limit_s=idle_limit_s)
