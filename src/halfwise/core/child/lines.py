"""A child that is talked to in lines: each is one JSON value, what it is asked and what it tells."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any, NamedTuple

from halfwise.core.child import process
from halfwise.core.child.copied import copy
from halfwise.core.opened import check_own

__all__ = ["Lines", "python_command"]

_BEGINS = "from halfwise.core.put_off import tell_libraries; tell_libraries(); "


class _Began(NamedTuple):
    child: process.Child
    asked: IO[bytes]
    told: IO[bytes]


class Lines:
    """Started with a thread of its own, which reads all that the child tells.

    `life` is what the command does with its input and output: a copy of this process does it where that is safe.
    """

    def __init__(
        self,
        command: Sequence[str],
        log_path: Path | None,
        environment: Mapping[str, str] | None = None,
        life: Callable[[], object] | None = None,
    ) -> None:
        self._told: SimpleQueue[bytes] = SimpleQueue()
        began: SimpleQueue[_Began | Exception] = SimpleQueue()
        copied = None if life is None else _copied(life, log_path)

        def live() -> None:
            """On Linux a child ends with the thread that started it, so that thread lives as long as the child."""
            try:
                found = copied or _started(command, log_path, environment)
            except Exception as error:
                began.put(error)
                return
            began.put(found)
            _read(found.told, self._told)

        Thread(target=live, daemon=True).start()
        found = began.get()
        if isinstance(found, Exception):
            raise found
        self.child, self._asked, _ = found

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    def send(self, what: object) -> None:
        """Nothing happens where the child is gone: the next `receive` tells."""
        with suppress(OSError):
            self._asked.write(f"{json.dumps(what)}\n".encode())
            self._asked.flush()

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next event, empty for a line that is none; None where the output is closed. Raises queue.Empty."""
        line = self._told.get(timeout=timeout)
        if not line.endswith(b"\n"):
            self._told.put(line)
            return None
        return _event(line)

    def close(self) -> None:
        """The child ends, and its group with it."""
        process.end(self.child)
        with suppress(OSError):
            self._asked.close()


def python_command(function: str, preload: Sequence[str] = ()) -> list[str]:
    """A fresh Python that can import all that this one can, and runs a function beside this module.

    Not `-m`: that puts the working directory in front of the path, where a user's `tensorrt.py` would be taken for the
    library.
    """
    module, _, name = function.partition(":")
    code = f"import sys; sys.path[:] = {sys.path!r}; {_BEGINS}from halfwise.core.child.{module} import {name}; "
    code += "".join(f"import {each}; " for each in preload) + f"{name}()"
    return [sys.executable, "-c", code]


def _started(command: Sequence[str], log_path: Path | None, environment: Mapping[str, str] | None) -> _Began:
    child = process.start(command, log_path=log_path, environment=environment, piped=True)
    assert child.stdin is not None and child.stdout is not None
    return _Began(child, child.stdin, child.stdout)


def _copied(life: Callable[[], object], log_path: Path | None) -> _Began | None:
    if log_path is not None:
        check_own(log_path)
    with ExitStack() as ours, ExitStack() as theirs:
        try:
            asked, ask = _pipe(theirs, ours)
            told, tell = _pipe(ours, theirs)
        except OSError:  # a command is started as ever, or told as what cannot be
            return None

        def begun() -> None:
            for end, number in ((asked, 0), (tell, 1)):
                os.dup2(end, number)
                os.close(end)
            life()

        child = copy(begun, log_path, (asked, tell))
        if child is None:
            return None
        ours.pop_all()
        return _Began(child, os.fdopen(ask, "wb"), os.fdopen(told, "rb"))


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Its ends, each of which is closed with its owner."""
    ends = os.pipe()
    for owner, end in zip((reader, writer), ends, strict=True):
        owner.callback(os.close, end)
    return ends


def _read(stream: IO[bytes], lines: SimpleQueue[bytes]) -> None:
    """All lines, and one that does not end with a newline when there is no more."""
    with stream:
        for line in stream:
            if line.endswith(b"\n"):
                lines.put(line)
    lines.put(b"")


def _event(line: bytes) -> dict[str, Any]:
    """Empty for a line that is none of the child's, such as what a library printed while Python started."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
