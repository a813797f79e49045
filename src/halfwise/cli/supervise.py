"""Runs the command line in a process of its own, so that its death is one line and an exit code.

The child is forked off before anything heavy is loaded; the parent waits, hands signals on, and tells what the child
died of. A native call that ended the child is refused when the command is run again: a search goes on without that
trial. Where processes cannot be forked, the command line runs here.
"""

from __future__ import annotations

import atexit
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread
from types import FrameType
from typing import Any

from halfwise.core.child.allowance import TIME, Allowance
from halfwise.core.child.black_box import BlackBox, attach
from halfwise.core.child.guard import end_with_parent, limit_memory
from halfwise.core.errors import InputError

__all__ = ["presses", "supervised"]

Handler = Callable[[int, FrameType | None], None]

_CODES = (0, 1, 2, 3, 130)  # of a command
_NONE = 255
_PRESSES = 2  # the byte that counts Ctrl-C handed on
_HANDED_ON = ("SIGINT", "SIGTERM", "SIGHUP")
_SOON_S = 0.02
_GRACE_S = 10.0  # for a child that is asked to end: native code may hear nothing of it


def supervised(command_line: Callable[[], None]) -> None:
    """Run it; ends by SystemExit, as `command_line` does."""
    limits = _limits()
    if not hasattr(os, "fork"):
        command_line()
        return
    box, end = BlackBox(), mmap.mmap(-1, 3)  # the command's code, the signal that asked it to end, Ctrl-C handed on
    handlers = {number: signal.getsignal(number) for number in _handed_on()}
    started = time.monotonic()
    while True:
        said = None if os.environ.get("HALFWISE_DEBUG") or sys.platform != "linux" else os.memfd_create("stderr")
        end[0] = _NONE
        child = _forked(box, limits, said, handlers, end)
        if not child:
            _lived(command_line, end)
            return
        status, timed_out = _wait(child, limits.seconds and started + limits.seconds - time.monotonic(), end)
        if os.WIFEXITED(status):
            _pass_on(said)
            if end[0] == 130 and end[1]:
                _tell(end[1], box, Allowance())
            if end[0] in _CODES:
                os._exit(end[0])
            if end[_PRESSES] and os.WEXITSTATUS(status) == 130:
                os._exit(130)  # interrupted before the command began, which told it
            _tell(-os.WEXITSTATUS(status), box, Allowance())
        if end[_PRESSES] and not end[1] and not timed_out:  # a library dies of an interruption while it is loaded
            _interrupted(told=end[0] == 130)
        number = end[1] or os.WTERMSIG(status)
        if timed_out or not box.refuse(number):
            break
    _tell(number, box, limits if timed_out else Allowance())


def _interrupted(*, told: bool) -> None:
    if not told:
        with suppress(OSError):
            os.write(2, b"halfwise: interrupted\n")
    os._exit(130)


def _lived(command_line: Callable[[], None], end: mmap.mmap) -> None:
    """The code is noted: code of the user's may end the process with another before it, or after it."""
    if not atexit._ncallbacks():  # else somebody waits for the end, as what measures coverage; first here is last there
        atexit.register(_leave, end)
    code: Any = 2
    try:
        command_line()
        code = 0
    except SystemExit as leaves:
        code = leaves.code
        raise
    except KeyboardInterrupt:
        code = 130
        raise
    finally:
        end[0] = code if code in _CODES else 2


def _leave(end: mmap.mmap) -> None:
    """Without freeing each object by itself, which takes longer than a small search."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # nobody reads it, or it was closed
            stream.flush()
    if end[0] in _CODES:
        os._exit(end[0])


def _handed_on() -> list[int]:
    return [getattr(signal, name) for name in _HANDED_ON]


def _forked(box: BlackBox, limits: Allowance, said: int | None, handlers: Mapping[int, Any], end: mmap.mmap) -> int:
    """0 in the child, which has the handlers. No signal comes between the fork and what is done with it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
    parent = os.getpid()
    child = os.fork()
    if not child:
        end_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        attach(box)
        for number, handler in handlers.items():
            signal.signal(number, handler if handler is not signal.SIG_DFL else _in_order(end))
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            press, sys.unraisablehook = presses(end)
            signal.signal(signal.SIGINT, press)
        if limits.memory:
            limit_memory(limits.memory)
        if said is not None:
            _set_noise_apart(said)
    else:
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, _to(child, end))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child


def _in_order(end: mmap.mmap) -> Handler:
    """What ends a command ends it as a Ctrl-C does, so that nothing of it is left behind."""

    def leave(number: int, frame: FrameType | None) -> None:
        end[1] = number
        signal.signal(number, signal.SIG_IGN)
        press = signal.getsignal(signal.SIGINT)
        if not callable(press):
            raise KeyboardInterrupt
        press(signal.SIGINT, frame)

    return leave


def _to(child: int, end: mmap.mmap) -> Handler:
    """Hands a signal on. A child that does not end in time is killed."""

    def hand_on(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            end[_PRESSES] = (end[_PRESSES] + 1) % 256
        else:
            end[1] = number
            signal.setitimer(signal.ITIMER_REAL, _GRACE_S)
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(child, number)

    return hand_on


def presses(end: mmap.mmap) -> tuple[Handler, Callable[[sys.UnraisableHookArgs], None]]:
    """What a Ctrl-C does: it reaches the child twice, from the terminal and from its parent, and counts once.

    The second takes the place of what Python does of an error that it drops, as while an object is freed: a Ctrl-C that
    came there comes again behind that.
    """
    known, handed, own = end[_PRESSES], 0, 0
    owed = dropped = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal known, handed, own, owed, dropped
        before, new = max(handed, own), (end[_PRESSES] - known) % 256
        known, handed, own = (known + new) % 256, handed + new, own + (not new)
        if max(handed, own) > before or dropped:
            owed = dropped = False
            raise KeyboardInterrupt

    def drop(told: sys.UnraisableHookArgs) -> None:
        nonlocal owed, dropped
        if not isinstance(told.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(told)
            return
        owed = True
        try:
            Thread(target=again, daemon=True).start()
        finally:  # not before: its other half may arrive meanwhile, and would be dropped, too
            owed = dropped = True

    def again() -> None:
        while owed:
            time.sleep(_SOON_S)
            if owed:
                os.kill(os.getpid(), signal.SIGINT)

    return press, drop


def _set_noise_apart(said: int) -> None:
    """What native code prints before it dies is kept; Python's own lines go where they went."""
    lines = os.fdopen(os.dup(2), "w", buffering=1, encoding=sys.stderr.encoding, errors=sys.stderr.errors)
    os.dup2(said, 2)
    sys.stderr = sys.__stderr__ = lines  # type: ignore[misc]


def _pass_on(said: int | None) -> None:
    """The noise of a command that came to its end."""
    if said is not None:
        os.lseek(said, 0, os.SEEK_SET)
        with suppress(OSError):  # nobody can read it, which is no reason for another exit code
            while piece := os.read(said, 1 << 16):
                os.write(2, piece)


def _wait(child: int, seconds: float, asked: mmap.mmap) -> tuple[int, bool]:
    """How it ended, and whether it was ended for its time."""
    late = []

    def end(number: int, frame: FrameType | None) -> None:
        late.append(not asked[1])
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3) if seconds else 0.0)
    _, status = os.waitpid(child, 0)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    return status, any(late)


def _tell(number: int, box: BlackBox, reached: Allowance) -> None:
    """One line, and the end of this process: as the child's where somebody ended that.

    A `number` of 0 and below is the exit code of a child that came to no end of its own.
    """
    from halfwise.core.child.process import Ended

    if not reached.seconds and number in _handed_on():
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # the first process of a container outlives it: what a shell makes of such an end
    doing = f" while {box.doing}" if box.doing else ""
    if reached.seconds:
        told = f"the command was stopped after {reached.seconds:g} s ({TIME}){doing}"
    else:
        early = " before it was done" if number <= 0 else ""
        ended = Ended(-number, 0.0, 0.0, False)
        again = "; give it more memory, and run the same command again" if ended.killed else ""
        told = f"the command {ended.describe()}{early}{doing}{again}"
    with suppress(OSError):
        os.write(2, f"halfwise: {told}\n".encode())
    os._exit(InputError.exit_code)


def _limits() -> Allowance:
    try:
        return Allowance.of_environment()
    except InputError as error:
        print(f"halfwise: {error}", file=sys.stderr)
        sys.exit(InputError.exit_code)
