"""What a process does in native code, kept where its supervisor reads it should the process die of it.

A file can make native code end the process. The supervisor then starts the command again, and the same call is refused:
to everyone above it looks like a library that raised.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

from halfwise.core.errors import InputError

__all__ = ["BlackBox", "Fatal", "attach", "attached", "guarded", "native_call"]

_SIZE = 1024
_END, _SEPARATOR = b"\0", b"\x1f"


class Fatal(InputError):
    """A call that ended the process before, and is not made again; `first`: no call did before it."""

    def __init__(self, message: str, *, first: bool) -> None:
        super().__init__(message)
        self.first = first


class BlackBox:
    """Memory that outlives the process that writes to it. `fatal`: how calls ended it before."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)
        self.fatal: dict[bytes, str] = {}

    def write(self, call: bytes) -> None:
        self._memory[: len(call) + 1] = call + _END

    def read(self) -> bytes:
        """The call that is being made; empty where there is none."""
        return self._memory[:].partition(_END)[0]

    @property
    def doing(self) -> str:
        return self.read().partition(_SEPARATOR)[0].decode()


_boxes: list[BlackBox] = []  # of this process: one, where it is supervised


def attach(box: BlackBox) -> None:
    """From now on this process writes to it."""
    _boxes[:] = [box]


def attached() -> bool:
    """Whether somebody outlives this process and tells what it died of."""
    return bool(_boxes)


def native_call(doing: str, content: bytes) -> bytes:
    """A call of a library on what a user gave: `doing` in words that follow "while", `content` says on what."""
    return doing.encode() + _SEPARATOR + hashlib.blake2b(content, digest_size=12).hexdigest().encode()


@contextmanager
def guarded(call: bytes, told: str = "") -> Iterator[None]:
    """Around a call; `told` sets it apart from others. Raises Fatal where just this ended the process before."""
    if not _boxes:
        yield
        return
    box, call = _boxes[0], (call + told.encode())[: _SIZE - 1]
    if box.fatal and call in box.fatal:
        raise Fatal(f"the library {box.fatal[call]}", first=call == next(iter(box.fatal)))
    box.write(call)
    try:
        yield
    finally:
        box.write(b"")
