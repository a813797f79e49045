"""Messages over a connection between two processes: the arrays in them go as memory that both map, in one copy."""

from __future__ import annotations

import mmap
import os
import pickle
import socket
from collections.abc import Iterator, Sequence
from itertools import accumulate
from multiprocessing.connection import Connection
from tempfile import TemporaryFile
from typing import IO, Any

__all__ = ["receive", "send"]

_ALIGNED = 64
_FOLLOWS = b"1"  # the byte that a file travels with


def send(connection: Connection[Any, Any], message: object) -> None:
    """Raises before anything is sent where there is no memory, or no file, for the arrays."""
    arrays: list[pickle.PickleBuffer] = []
    body = pickle.dumps(message, 5, buffer_callback=arrays.append)
    views = [array.raw() for array in arrays]
    sizes = [view.nbytes for view in views]
    if not sizes:
        connection.send((body, sizes))
        return
    with _memory() as file, _socket(connection) as opened:
        for view, start in zip(views, _starts(sizes), strict=True):
            file.seek(start)
            file.write(view)
        file.flush()
        connection.send((body, sizes))
        socket.send_fds(opened, [_FOLLOWS], [file.fileno()])


def receive(connection: Connection[Any, Any]) -> Any:
    body, sizes = connection.recv()
    return pickle.loads(body, buffers=_received(connection, sizes) if sizes else ())


def _received(connection: Connection[Any, Any], sizes: Sequence[int]) -> Iterator[memoryview]:
    """Parts of one mapping, which lives as long as one of them."""
    with _socket(connection) as opened:
        said, files, _, _ = socket.recv_fds(opened, len(_FOLLOWS), 1)
    if not said:
        raise EOFError
    if not files:
        raise MemoryError("too many files are open")
    try:
        held = memoryview(mmap.mmap(files[0], 0, access=mmap.ACCESS_COPY))
    except OSError as error:
        raise MemoryError(f"no memory for {sum(sizes)} bytes") from error
    finally:
        os.close(files[0])
    return (held[start : start + size] for start, size in zip(_starts(sizes), sizes, strict=True))


def _starts(sizes: Sequence[int]) -> list[int]:
    rooms = (-(-size // _ALIGNED) * _ALIGNED for size in sizes)
    return [0, *accumulate(rooms)][: len(sizes)]


def _memory() -> IO[bytes]:
    """A file that has no name."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("arrays"), "w+b")
    return TemporaryFile()


def _socket(connection: Connection[Any, Any]) -> socket.socket:
    return socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
