"""Processes that have their libraries loaded when they start: each is forked from one child, which keeps none waiting.

The child tells which ended and how. It ends with its parent, and what was forked from it ends with it. Where Python
does not fork well, each process is a fresh one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty
from types import TracebackType
from typing import Any

from halfwise.core.child import process
from halfwise.core.child.folders import LOG, ChildFolder
from halfwise.core.child.lines import Lines, python_command
from halfwise.core.errors import MissingBackend

__all__ = ["Forks", "Fresh", "Processes", "processes"]

_START_S = 300.0  # within which the child has loaded its libraries
_LOOK_S = 0.02
_GONE = -9  # what became of a process whose end nobody saw


class Processes(ABC):
    """Each runs one function of the data that it is given, in a process group of its own."""

    @abstractmethod
    def start(self, function: str, data: Any) -> int:
        """The process's number. `function` is such as "package.module:name", and ends the process itself."""

    @abstractmethod
    def ended(self, timeout: float) -> dict[int, int]:
        """Exit codes, negative for a signal, of what ended since the last call; it waits for one to end."""

    @abstractmethod
    def kill(self, number: int) -> None:
        """The process and its group, if it still runs. Its end is told as any other."""

    @abstractmethod
    def close(self) -> None:
        """Nothing of it is left running."""

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def processes(preload: Sequence[str]) -> Processes:
    """Those of this platform; `preload` are modules that each process finds loaded where it is forked."""
    return Forks(preload) if sys.platform == "linux" else Fresh()


class Forks(Processes):
    """A child that died is replaced with the next start; what was forked from it is told as killed."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._command = python_command("fork_server:serve_forks", preload)
        self._folder = ChildFolder()
        self._log = self._folder.path / LOG
        self._children = [Lines(self._command, self._log)]  # the last one lives
        self._running: set[int] = set()
        self._ended: dict[int, int] = {}

    def start(self, function: str, data: Any) -> int:
        if not self._children[-1].alive:
            self._lost()
            self._children.append(Lines(self._command, self._log))
        self._children[-1].send({"start": function, "data": data})
        deadline = time.monotonic() + _START_S
        while (left := deadline - time.monotonic()) > 0:
            event = self._next(left)
            if event is None:
                self._lost()
                break
            if "started" in event:
                self._running.add(event["started"])
                return int(event["started"])
        told = " | ".join(process.log_tail(self._log, 2)) or "it logged nothing"
        raise MissingBackend(f"the process that jobs are forked from did not start one: {told}")

    def ended(self, timeout: float) -> dict[int, int]:
        event = self._next(0.0 if self._ended else timeout)
        while event:
            event = self._next(0.0)
        if event is None and self._running:
            self._lost()
        elif event is None:
            time.sleep(min(timeout, _LOOK_S))
        found = dict(self._ended)
        self._ended.clear()
        return found

    def kill(self, number: int) -> None:
        self._children[-1].send({"kill": number})

    def close(self) -> None:
        for child in self._children:
            child.close()
        self._folder.cleanup()

    def _next(self, timeout: float) -> dict[str, Any] | None:
        """What the child tells next; ends are noted. Empty when the time is up, None where the child is gone."""
        try:
            event = self._children[-1].receive(timeout)
        except Empty:
            return {}
        if event and "ended" in event:
            self._running.discard(event["ended"])
            self._ended[event["ended"]] = event["code"]
        return event

    def _lost(self) -> None:
        self._children[-1].close()
        self._ended.update(dict.fromkeys(self._running, _GONE))
        self._running.clear()


class Fresh(Processes):
    """A Python of its own for each process."""

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, function: str, data: Any) -> int:
        command = [*python_command("fork_server:run_alone"), function, json.dumps(data)]
        child = process.start(command, log_path=None)
        self._running[child.pid] = child
        return child.pid

    def ended(self, timeout: float) -> dict[int, int]:
        deadline = time.monotonic() + timeout
        while True:
            found = {number: code for number, child in self._running.items() if (code := child.poll()) is not None}
            if found or time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_S)
        for number in found:
            del self._running[number]
        return found

    def kill(self, number: int) -> None:
        with suppress(KeyError):
            process.end(self._running[number])

    def close(self) -> None:
        for child in self._running.values():
            process.end(child)
