"""Runs a command as a child process that cannot hurt the parent: time limit, own process group, output to a file.

A native compiler may crash, abort, hang or eat all memory. So it runs in a child: whatever the child does, `run`
returns how it ended, and no process of its group is left behind when the time is up or the parent is interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from halfwise.core.errors import InputError, MissingBackend

__all__ = ["Ended", "guard_child", "log_tail", "python_command", "run"]

# What is left to a Python child after its time limit, should the parent be gone and nobody else end it.
_ORPHAN_GRACE_S = 15.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """How a child ended. `returncode` is negative for a signal, as in `subprocess`."""

    returncode: int
    seconds: float
    time_limit_s: float
    timed_out: bool

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out

    def describe(self) -> str:
        """The end in words that follow a subject, such as "crashed (SIGSEGV)"."""
        if self.timed_out:
            return f"did not finish within {self.time_limit_s:g} s and was stopped (give it a longer time limit)"
        if self.returncode == -int(getattr(signal, "SIGKILL", 9)):
            return "was killed (SIGKILL), most often because the machine ran out of memory"
        if self.returncode < 0:
            return f"crashed ({_signal_name(-self.returncode)})"
        if self.returncode > 0x7FFFFFFF:  # Windows says so, for instance 0xC0000005 for an access violation
            return f"crashed (exit code {self.returncode:#x})"
        return f"ended with exit code {self.returncode}"


def run(command: Sequence[str], *, log_path: Path, time_limit_s: float) -> Ended:
    """Run `command` to its end or to the time limit; what it prints is appended to `log_path`.

    The child gets no input and a process group of its own, which is killed as a whole at the time limit and on any
    exception in the parent, KeyboardInterrupt included.
    """
    if not time_limit_s > 0:
        raise InputError(f"the time limit must be more than 0 s, not {time_limit_s:g}")
    started = time.monotonic()
    timed_out = False
    with log_path.open("ab") as log:
        try:
            child = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise MissingBackend(f"cannot start {command[0]}: {error.strerror or error}") from error
    try:
        child.wait(timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        # Not reaped yet, so its id cannot have been given to anybody else.
        if child.poll() is None:
            _kill_group(child)
            child.wait()
    return Ended(child.returncode, time.monotonic() - started, time_limit_s, timed_out)


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that calls `module.main(*arguments)` in a fresh Python which can import all that this one can.

    Not `-m`: that puts the working directory in front of the path, where a user's `tensorrt.py` would be taken for the
    library.
    """
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from importlib import import_module; "
        f"import_module({module!r}).main(*sys.argv[1:])"
    )
    return [sys.executable, "-c", code, *arguments]


def guard_child(time_limit_s: float) -> None:
    """Called first in a Python child: it ends soon after its parent does, and is the first to go when memory is out."""
    if sys.platform == "win32":
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, time_limit_s + _ORPHAN_GRACE_S)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


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


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        child.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
