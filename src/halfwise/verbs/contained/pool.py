"""Workers of this process: started when they are needed, kept, and gone with it."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from halfwise.core.child import process
from halfwise.core.child.allowance import TIME
from halfwise.core.child.black_box import BlackBox, attached
from halfwise.core.child.copied import copy, ruled_out
from halfwise.core.child.folders import LOG, ChildFolder
from halfwise.core.child.process import Ended
from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.put_off import put_off
from halfwise.verbs.contained.message import Died
from halfwise.verbs.contained.wire import receive, send

__all__ = ["Worker", "begin", "contains", "taken"]

_SETTING = "HALFWISE_CONTAIN"
_OTHERS = (_SETTING, TIME, "PYTEST_CURRENT_TEST")  # settings that no worker reads

_BEGINS = (
    "from halfwise.core.put_off import put_off; put_off(); "
    "from halfwise.verbs.contained.serve import serve; serve(sys.argv[1:])"
)

_idle: list[Worker] = []


class Worker:
    """A process that calls functions, one at a time; of `preloaded` it has the module from its start."""

    def __init__(self, preloaded: str) -> None:
        self.owner, self.surroundings = os.getpid(), _surroundings()
        self._folder = ChildFolder()
        self._call = self._folder.path / "call"
        BlackBox(self._call)
        self._connection, theirs = _pipe()
        try:
            self.child = self._started(preloaded, theirs)
        finally:
            theirs.close()

    def _started(self, preloaded: str, theirs: Connection[Any, Any]) -> process.Child:
        """A copy of this process where that is safe: then nothing is loaded twice."""
        log = None if os.environ.get("HALFWISE_DEBUG") else self._folder.path / LOG
        words = [preloaded, str(self.owner), str(theirs.fileno()), str(self._call)]
        child = copy(partial(_live, words), log, (theirs.fileno(),))
        if child is not None:
            return child
        code = f"import sys; sys.path[:] = {sys.path!r}; {_BEGINS}"
        return process.start([sys.executable, "-c", code, *words], log_path=log, passed=(theirs.fileno(),))

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self.surroundings == _surroundings() and self.child.poll() is None

    def box(self, fatal: Mapping[bytes, str]) -> BlackBox:
        return BlackBox(self._call, fatal)

    def send(self, what: object) -> None:
        """Nothing happens where the worker is gone: the next `receive` tells."""
        with suppress(BrokenPipeError, ConnectionResetError):
            send(self._connection, what)

    def receive(self, started: float, limit_s: float) -> Any:
        """What it says next, or how it ended; it is ended when `limit_s` are over. 0: no limit."""
        try:
            left = max(0.0, started + limit_s - time.monotonic()) if limit_s else None
            timed_out = left == 0.0 or not self._connection.poll(left)
            said = None if timed_out else receive(self._connection)
        except (EOFError, OSError):
            said, timed_out = None, False
            self.child.wait()
        if said is None:
            process.end(self.child)
            said = Died(self.child.wait())
        if isinstance(said, Died):
            return Ended(said.returncode, time.monotonic() - started, limit_s, timed_out)
        return said

    def close(self) -> None:
        if self.owner == os.getpid():
            process.end(self.child)
            self._connection.close()
            self._folder.cleanup()


def _pipe() -> tuple[Connection[Any, Any], Connection[Any, Any]]:
    """With none of the numbers of streams that the program has closed: the worker's own streams come there."""
    import fcntl  # not on Windows, where there are no workers

    ends = Pipe()
    if min(end.fileno() for end in ends) > 2:
        return ends
    with ends[0], ends[1]:
        ours, theirs = (fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    return Connection(ours), Connection(theirs)


def _live(words: Sequence[str]) -> NoReturn:
    put_off()
    if runtime := sys.modules.get("onnxruntime"):
        runtime.disable_telemetry_events()  # it began before put_off said so
    from halfwise.verbs.contained.serve import serve  # which loads much

    serve(words)


def contains() -> bool:
    """Whether calls go to workers in this process."""
    return not attached() and sys.platform != "win32" and os.environ.get(_SETTING) != "0"


def begin(preloaded: str) -> None:
    """Start a worker for a call that is about to come, where that is no copy of this process: it loads its libraries
    while this process loads its own."""
    with suppress(HalfwiseError):  # the call tells
        if contains() and not _idle and ruled_out():
            _idle.append(_started(preloaded))


@contextmanager
def taken(preloaded: str) -> Iterator[Worker]:
    """A worker for one call; it does not outlive an error here, such as an interruption."""
    worker = _taken(preloaded)
    try:
        yield worker
    except BaseException:
        worker.close()
        raise
    if worker.usable:
        _idle.append(worker)


def _taken(preloaded: str) -> Worker:
    """Several threads may ask at once: each gets its own."""
    while True:
        try:
            worker = _idle.pop()
        except IndexError:
            return _started(preloaded)
        if worker.usable:
            return worker
        worker.close()


def _started(preloaded: str) -> Worker:
    try:
        worker = Worker(preloaded)
    except OSError as error:  # no folder for temporary files, or no process
        raise InputError(f"no worker can be started: {error}; HALFWISE_CONTAIN=0 runs calls in this process") from error
    atexit.unregister(_close)
    atexit.register(_close)  # behind what warns of folders that are still there, so that it comes before that
    return worker


def _close() -> None:
    for worker in _idle:
        worker.close()


def _surroundings() -> tuple[list[str], dict[str, str]]:
    """What a worker has from its start."""
    environment = {name: text for name, text in os.environ.items() if name not in _OTHERS}
    return list(sys.path), environment
