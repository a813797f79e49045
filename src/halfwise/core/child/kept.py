"""One child for all small requests of this process: started with the first, replaced when it died, gone at the end."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any

from halfwise.core.child.arrays import Arrays
from halfwise.core.child.serve import Answer
from halfwise.core.child.worker import Worker

__all__ = ["ask", "ready"]

_PRELOAD = ("numpy", "onnxruntime")  # what every request needs

_one_at_a_time = RLock()
_workers: dict[int, Worker] = {}  # by the process that started it: a fork starts its own


def ask(function: str, data: Mapping[str, Any], arrays: Sequence[Arrays] = (), *, time_limit_s: float) -> Answer:
    """What `Worker.ask` answers; requests of several threads wait for one another."""
    with _one_at_a_time:
        return _worker().ask(function, data, arrays, time_limit_s=time_limit_s)


def ready() -> None:
    """Start the child now, so that it has loaded its libraries when it is asked."""
    with _one_at_a_time:
        _worker()


def _worker() -> Worker:
    worker = _workers.get(os.getpid())
    if worker is None:
        atexit.register(_close, os.getpid())
    elif worker.alive:
        return worker
    else:
        worker.close()
    _workers[os.getpid()] = Worker(preload=_PRELOAD)
    return _workers[os.getpid()]


def _close(process: int) -> None:
    if os.getpid() == process:
        _workers[process].close()
