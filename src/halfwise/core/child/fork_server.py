"""The child that others are forked from: it starts them, ends them, and tells how they ended."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, NoReturn

from halfwise.core.child.guard import end_with_parent
from halfwise.core.child.serve import channels, guard_child

__all__ = ["run_alone", "serve_forks"]


def serve_forks() -> NoReturn:
    """The whole life of it. Lines in: {"start": "package.module:name", "data": ...} or {"kill": number}."""
    asked, events = channels()
    end_with_parent()
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    running: set[int] = set()
    for order in _orders(asked.fileno(), wake, running, events):
        if "kill" in order:
            _kill(order["kill"], running)
            continue
        sys.stdout.flush()
        sys.stderr.flush()
        parent, child = os.getpid(), os.fork()
        if not child:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for file in (asked, events):
                file.close()
            _run(order["start"], order["data"], parent)
        running.add(child)
        _tell(events, {"started": child})
    for number in running:
        _kill(number, running)
    os._exit(0)


def run_alone() -> NoReturn:
    """The life of a process of its own: its last two words are the function and its data."""
    _run(sys.argv[-2], json.loads(sys.argv[-1]), os.getppid())


def _orders(asked: int, wake: int, running: set[int], events: IO[str]) -> Iterator[dict[str, Any]]:
    """Until the parent is gone; meanwhile what ended is told."""
    left = b""
    while True:
        ready, _, _ = select.select([asked, wake], [], [])
        if wake in ready:
            os.read(wake, 1 << 12)
            _reap(running, events)
        if asked in ready:
            piece = os.read(asked, 1 << 16)
            if not piece:
                return
            *lines, left = (left + piece).split(b"\n")
            yield from map(json.loads, lines)


def _reap(running: set[int], events: IO[str]) -> None:
    with suppress(ChildProcessError):
        while True:
            number, status = os.waitpid(-1, os.WNOHANG)
            if not number:
                return
            running.discard(number)
            _tell(events, {"ended": number, "code": os.waitstatus_to_exitcode(status)})


def _run(function: str, data: Any, parent: int) -> NoReturn:
    code = 1
    try:
        if hasattr(os, "setsid"):
            with suppress(OSError):  # of a process that leads its group already
                os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides who stops
        guard_child()
        if hasattr(os, "fork") and os.getppid() != parent:
            os._exit(code)
        module, _, name = function.partition(":")
        code = getattr(import_module(module), name)(data)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # without the native libraries' teardown, which has nothing left to do but crash


def _kill(number: int, running: set[int]) -> None:
    """A number that is not among those that run may be anybody's by now."""
    if number in running:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(number, signal.SIGKILL)


def _tell(events: IO[str], event: dict[str, Any]) -> None:
    with suppress(OSError):  # of a parent that is gone: it closes its other end, too
        events.write(json.dumps(event) + "\n")
        events.flush()
