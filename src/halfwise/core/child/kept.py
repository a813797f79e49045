"""Children that are kept: one for all small requests of this process, and those from which others are forked.

Each is started when it is first asked for, replaced when it died, and gone at the end.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from threading import RLock
from typing import Any

from halfwise.core.child.arrays import Arrays
from halfwise.core.child.copied import ruled_out
from halfwise.core.child.forks import Processes, processes
from halfwise.core.child.serve import Answer
from halfwise.core.child.worker import Worker

__all__ = ["ask", "copied", "forked", "ready"]

_PRELOAD = ("numpy", "onnxruntime")  # what every request needs

_one_at_a_time = RLock()
_workers: dict[int, Worker] = {}  # by the process that started it: a fork starts its own
_forks: dict[tuple[int, tuple[str, ...]], Processes] = {}


def ask(function: str, data: Mapping[str, Any], arrays: Sequence[Arrays] = (), *, time_limit_s: float) -> Answer:
    """What `Worker.ask` answers; requests of several threads wait for one another."""
    with _one_at_a_time:
        return _worker().ask(function, data, arrays, time_limit_s=time_limit_s)


def ready(*modules: str) -> None:
    """Start the child now, so that it has loaded its libraries, and these modules, when it is asked. Where it may be a
    copy of this process, this process loads them first."""
    for each in () if ruled_out() else (*_PRELOAD, *modules):
        import_module(each)
    with _one_at_a_time:
        _worker(modules)


def copied(*modules: str) -> None:
    """The same, but nothing where it can be no copy."""
    if not ruled_out():
        ready(*modules)


def forked(preload: tuple[str, ...]) -> Processes:
    """Where processes start with these modules loaded."""
    with _one_at_a_time:
        key = (os.getpid(), preload)
        if key not in _forks:
            if not any(process == os.getpid() for process, _ in _forks):
                atexit.register(_close_forks, os.getpid())
            _forks[key] = processes(preload)
        return _forks[key]


def _worker(modules: tuple[str, ...] = ()) -> Worker:
    worker = _workers.get(os.getpid())
    if worker is None:
        atexit.register(_close, os.getpid())
    elif worker.alive:
        return worker
    else:
        worker.close()
    _workers[os.getpid()] = Worker(preload=(*_PRELOAD, *modules))
    return _workers[os.getpid()]


def _close(process: int) -> None:
    if os.getpid() == process and process in _workers:  # it may not have started
        _workers[process].close()


def _close_forks(process: int) -> None:
    for (owner, _), each in _forks.items():
        if owner == process == os.getpid():
            each.close()
