"""Runs a command as a child process that cannot hurt the parent: time limit, own process group, output to a file.

A native compiler may crash, abort, hang or eat all memory. So it runs in a child: whatever the child does, `run`
returns how it ended, and no process of its group is left behind when the time is up or the parent is interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

from halfwise.core.errors import InputError, MissingBackend
from halfwise.core.opened import check_own

__all__ = ["Child", "Ended", "check_limit", "end", "log_tail", "run", "start"]

_TOLD_LINES = 4  # of the end of a log, in an error
_TOLD_WIDTH = 200


class Child(Protocol):
    """What is asked of a process that this one started."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(frozen=True)
class Ended:
    """How a child ended. `returncode` is negative for a signal, as in `subprocess`."""

    returncode: int
    seconds: float
    time_limit_s: float
    timed_out: bool
    idle: bool = False  # it had computed nothing for long when it was ended

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out and not self.idle

    @property
    def killed(self) -> bool:
        """Whether somebody else ended it, which the system does where memory is out."""
        return not self.timed_out and not self.idle and self.returncode == -int(getattr(signal, "SIGKILL", 9))

    def describe(self) -> str:
        """The end in words that follow a subject, such as "crashed (SIGSEGV)"."""
        if self.timed_out:
            return f"did not finish within {self.time_limit_s:g} s and was stopped (give it a longer time limit)"
        if self.idle:
            return (
                f"computed nothing any more and was stopped after {self.seconds:.0f} s, most often because memory or "
                "threads ran out (ulimit -v, ulimit -u)"
            )
        if self.killed:
            return "was killed (SIGKILL), most often because the machine ran out of memory"
        if self.returncode == -int(getattr(signal, "SIGBUS", 7)):
            return "crashed (SIGBUS), most often because a file that it read was cut short"
        if self.returncode < 0:
            return f"crashed ({_signal_name(-self.returncode)})"
        if self.returncode > 0x7FFFFFFF:  # Windows says so, for instance 0xC0000005 for an access violation
            return f"crashed (exit code {self.returncode:#x})"
        return f"ended with exit code {self.returncode}"

    def tell(self, doing: str, tail: Sequence[str]) -> str:
        """The end, what the child was doing, and the last lines of its log: one line that follows a subject."""
        lines = " | ".join(line[:_TOLD_WIDTH] for line in tail[-_TOLD_LINES:])
        return f"{self.describe()} while {doing}; {f'the end of its log: {lines}' if tail else 'it logged nothing'}"


def run(
    command: Sequence[str],
    *,
    log_path: Path | None,
    time_limit_s: float,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run `command` to its end or to the time limit; what it prints is appended to `log_path`, or goes to stderr.

    The child gets no input and a process group of its own, which is killed as a whole at the time limit and on any
    exception in the parent, KeyboardInterrupt included. `environment` is added to the parent's own.
    """
    check_limit(time_limit_s)
    started = time.monotonic()
    children: list[subprocess.Popen[bytes]] = []
    timed_out = False
    try:
        with _no_interruption():
            children.append(start(command, log_path=log_path, environment=environment))
        children[0].wait(timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        for child in children:
            end(child)
    return Ended(children[0].returncode, time.monotonic() - started, time_limit_s, timed_out)


@contextmanager
def _no_interruption() -> Iterator[None]:
    """A Ctrl-C comes after it: a child that nobody knows yet would be left behind."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    for each in pressed[:1]:
        handler(*each)


def start(
    command: Sequence[str],
    *,
    log_path: Path | None,
    environment: Mapping[str, str] | None = None,
    piped: bool = False,
    passed: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """The child in a process group of its own; `piped` gives it an input, and keeps its output apart from the log.

    `passed` are open files that it has, too.
    """
    log: IO[bytes] | None = None
    try:
        if log_path is not None:
            check_own(log_path)
            log = log_path.open("ab")
        errors = 2 if log is None else log
        return subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else errors,
            stderr=errors,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            pass_fds=passed,
        )
    except OSError as error:
        raise MissingBackend(f"cannot start {command[0]}: {error.strerror or error}") from error
    finally:
        if log is not None:
            log.close()


def end(child: Child) -> None:
    """Kill what is left of the child and of its group."""
    # Not reaped yet, so its id cannot have been given to anybody else.
    if child.poll() is not None:
        return
    if sys.platform == "win32":
        child.kill()
    else:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:  # a copy has begun and leads no group yet
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
    child.wait()


def check_limit(time_limit_s: float) -> None:
    if not time_limit_s > 0:
        raise InputError(f"the time limit must be more than 0 s, not {time_limit_s:g}")


def log_tail(path: Path, lines: int = 12, most_bytes: int = 16_384) -> tuple[str, ...]:
    """The last lines of a log that may be of any size, without the empty ones."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - most_bytes))
            text = log.read().decode("utf-8", errors="replace")
    except OSError:
        return ()
    kept = [line.rstrip() for line in text.split("\n") if line.strip()]
    return tuple(kept[-lines:])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
