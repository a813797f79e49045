"""What a process does in native code, kept where its supervisor reads it should the process die of it.

A file can make native code end the process. The supervisor then starts the command again, and the same call is refused:
to everyone above it looks like a library that raised.
"""

from __future__ import annotations

import hashlib
import mmap
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from halfwise.core.errors import InputError

__all__ = ["BlackBox", "Fatal", "attach", "attached", "detach", "guarded", "native_call"]

_SIZE = 1024
_MOST_REFUSED = 8  # calls in one command
_CRASHES = ("SIGSEGV", "SIGABRT", "SIGFPE", "SIGBUS", "SIGILL", "SIGTRAP", "SIGPROF")
_END, _SEPARATOR = b"\0", b"\x1f"


class Fatal(InputError):
    """A call that ended the process before, and is not made again; `first`: no call did before it."""

    def __init__(self, message: str, *, first: bool) -> None:
        super().__init__(message)
        self.first = first


class BlackBox:
    """Memory that outlives the process that writes to it: a fork has it in common, others by its file.

    `fatal`: how calls ended the process before.
    """

    def __init__(self, file: Path | None = None, fatal: Mapping[bytes, str] | None = None) -> None:
        if file is None:
            self._memory = mmap.mmap(-1, _SIZE)
        else:
            if not file.exists() or file.stat().st_size < _SIZE:  # what a process left that was killed in between
                file.write_bytes(bytes(_SIZE))  # a disk that is full is told here
            with file.open("r+b") as opened:
                self._memory = mmap.mmap(opened.fileno(), _SIZE)
        self.fatal = dict(fatal or {})

    def write(self, call: bytes) -> None:
        self._memory[: len(call) + 1] = call + _END

    def read(self) -> bytes:
        """The call that is being made; empty where there is none."""
        return self._memory[:].partition(_END)[0]

    @property
    def doing(self) -> str:
        return self.read().partition(_SEPARATOR)[0].decode()

    def refuse(self, number: int) -> bool:
        """The process died of this signal: whether the call that it was making is refused from now on, so that the
        command may run again."""
        call, name = self.read(), signal.Signals(number).name
        if name not in _CRASHES or not call or call in self.fatal or len(self.fatal) >= _MOST_REFUSED:
            return False
        self.fatal[call] = "took too long" if name == "SIGPROF" else f"crashed ({name})"
        self.write(b"")
        return True


_boxes: list[BlackBox] = []  # of this process: one, where it is supervised


def attach(box: BlackBox) -> None:
    """From now on this process writes to it."""
    _boxes[:] = [box]


def detach() -> None:
    """This process writes to none any more."""
    _boxes.clear()


def attached() -> bool:
    """Whether somebody outlives this process and tells what it died of."""
    return bool(_boxes)


def native_call(doing: str, content: bytes) -> bytes:
    """A call of a library on what a user gave: `doing` in words that follow "while", `content` says on what. Empty
    where nobody reads it."""
    if not _boxes:
        return b""
    return doing.encode() + _SEPARATOR + hashlib.blake2b(content, digest_size=12).hexdigest().encode()


@contextmanager
def guarded(call: bytes, tell: Callable[[], str] = str, *, cpu_seconds: float = 0.0) -> Iterator[None]:
    """Around a call; what `tell` gives sets it apart from others. Raises Fatal where just this ended the process.

    A call that takes more than `cpu_seconds` ends it, too.
    """
    if not _boxes:
        yield
        return
    box, call = _boxes[0], (call + tell().encode())[: _SIZE - 1]
    if box.fatal and call in box.fatal:
        raise Fatal(f"the library {box.fatal[call]}", first=call == next(iter(box.fatal)))
    box.write(call)
    if cpu_seconds:
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        if cpu_seconds:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        box.write(b"")
