"""A child that is talked to in lines: each is one JSON value, what it is asked and what it tells."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from halfwise.core.child import process

__all__ = ["Lines", "python_command"]

_BEGINS = "from halfwise.core.put_off import tell_libraries; tell_libraries(); "


class Lines:
    """Started with a thread of its own, which reads all that the child tells."""

    def __init__(
        self, command: Sequence[str], log_path: Path | None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._told: SimpleQueue[bytes] = SimpleQueue()
        started: SimpleQueue[subprocess.Popen[bytes] | Exception] = SimpleQueue()

        def live() -> None:
            """On Linux a child ends with the thread that started it, so that thread lives as long as the child."""
            try:
                child = process.start(command, log_path=log_path, environment=environment, piped=True)
            except Exception as error:
                started.put(error)
                return
            started.put(child)
            assert child.stdout is not None
            _read(child.stdout, self._told)

        Thread(target=live, daemon=True).start()
        child = started.get()
        if isinstance(child, Exception):
            raise child
        self.child = child

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    def send(self, what: object) -> None:
        """Nothing happens where the child is gone: the next `receive` tells."""
        assert self.child.stdin is not None
        with suppress(OSError):
            self.child.stdin.write(f"{json.dumps(what)}\n".encode())
            self.child.stdin.flush()

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
        assert self.child.stdin is not None
        with suppress(OSError):
            self.child.stdin.close()


def python_command(function: str, preload: Sequence[str] = ()) -> list[str]:
    """A fresh Python that can import all that this one can, and runs a function beside this module.

    Not `-m`: that puts the working directory in front of the path, where a user's `tensorrt.py` would be taken for the
    library.
    """
    module, _, name = function.partition(":")
    code = f"import sys; sys.path[:] = {sys.path!r}; {_BEGINS}from halfwise.core.child.{module} import {name}; "
    code += "".join(f"import {each}; " for each in preload) + f"{name}()"
    return [sys.executable, "-c", code]


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
