"""A child with all that this process has loaded: a fork of it, made only where nothing else runs in it."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from halfwise.core.child.allowance import Allowance
from halfwise.core.child.black_box import detach
from halfwise.core.freed_memory import own_bytes

__all__ = ["Copy", "copy", "ruled_out"]

_MOST_OWN_BYTES = 1 << 29  # what this process holds: the child would keep it from the system after it is freed here
_GO = b"1"
_LOOK_S = 0.02
_TASKS = Path("/proc/self/task")
_LEFT_BEHIND = re.compile(r"/dev/(?!shm/|zero)|lib[gi]?omp")  # devices and OpenMP's threads are of no use to a fork


class Copy:
    """What is asked of a child, as `subprocess.Popen` answers it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._codes: list[int] = []

    @property
    def returncode(self) -> int | None:
        return self._codes[0] if self._codes else None

    def poll(self) -> int | None:
        return self._ended(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None:
            return self._ended(0) or 0
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("a copy", timeout)
            time.sleep(_LOOK_S)
        return code

    def _ended(self, options: int) -> int | None:
        if not self._codes:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # somebody else waited for it
                self._codes.append(0)
            else:
                self._codes.extend([os.waitstatus_to_exitcode(status)] if pid else [])
        return self.returncode


def copy(life: Callable[[], object], log: Path | None, kept: Collection[int]) -> Copy | None:
    """A fork that lives `life`, prints to `log`, and has the `kept` of the open files; None where it is not safe.

    A thread may hold a lock that nobody in the child will release. So all others sleep until they are woken, as those
    of a pool do that have no work, from before the fork until after it. OpenBLAS ends its own before a fork.
    """
    if ruled_out():
        return None
    try:
        asleep = _asleep()
        if len(asleep) < _others() - (os.cpu_count() or 1):  # more run than those of OpenBLAS
            return None
        wait, go = os.pipe()
    except OSError:  # no more files
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if not pid:
            os.close(go)
            _live(life, log, kept, wait)
        if not _slept(asleep):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        os.write(go, _GO)
        return Copy(pid)
    except (OSError, RuntimeError):
        return None
    finally:
        os.close(wait)
        os.close(go)


def ruled_out() -> bool:
    """Whether there is none for what this process is, whatever its native threads do. A limit of memory counts what
    this process holds, too."""
    if sys.platform != "linux" or Allowance.of_environment().memory:
        return True
    return threading.active_count() > 1 or own_bytes() > _MOST_OWN_BYTES


def _others() -> int:
    return sum(1 for _ in _TASKS.iterdir()) - 1


def _asleep() -> dict[str, tuple[str, ...]]:
    """The threads that wait to be woken, and how often each has begun and ceased to run so far."""
    found = {}
    for task in _TASKS.iterdir():
        with suppress(OSError):  # it has ended
            if (task / "wchan").read_text(encoding="ascii").startswith("futex"):
                lines = (task / "status").read_text(encoding="utf-8", errors="replace").splitlines()
                found[task.name] = tuple(line for line in lines if "ctxt_switches" in line)
    return found


def _slept(before: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether each other thread that there is has slept all the time."""
    if not (others := _others()):
        return True
    slept = before.items() & _asleep().items()
    return len(slept) == others and not _LEFT_BEHIND.search(_maps())


def _maps() -> str:
    return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")


def _live(life: Callable[[], object], log: Path | None, kept: Collection[int], wait: int) -> NoReturn:
    try:
        if os.read(wait, 1) == _GO:
            _leave(log, kept)
            life()
    except BaseException as error:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        os._exit(1)  # nothing that the parent began is ended here


def _leave(log: Path | None, kept: Collection[int]) -> None:
    """What belongs to the parent alone: its terminal, its open files, its handlers, its garbage."""
    os.setsid()
    detach()  # it tells what the parent does
    gc.freeze()  # what is freed here must not write to a file, or remove one
    sys.settrace(None)
    sys.setprofile(None)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _leave_files(log, kept)
    for file, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        stream = os.fdopen(file, mode, encoding="utf-8", errors="replace", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _leave_files(log: Path | None, kept: Collection[int]) -> None:
    """Their numbers stay taken: what the parent's objects may still write comes nowhere."""
    nothing = os.open(os.devnull, os.O_RDWR)
    printed = 2 if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.dup2(nothing, 0)
    numbers = [int(file.name) for file in Path("/proc/self/fd").iterdir()]
    for number in numbers:
        if number > 2 and number not in kept:
            with suppress(OSError):  # the folder that was listed
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)
