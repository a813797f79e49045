"""Whether limits leave room for more threads: ONNX Runtime waits for ever for one that did not start."""

from __future__ import annotations

import sys
from pathlib import Path

from halfwise.core.control_groups import tasks_left

__all__ = ["room_for"]

_STACK = 8 << 20  # bytes, where the system states no size
_SPARE = 1 << 28  # bytes for what the threads work on
_TASKS_SPARE = 8  # for what else starts meanwhile
_STATM = Path("/proc/self/statm")
_WHOLE, _DATA = 0, 5  # fields of it, in pages


def room_for(threads: int) -> bool:
    """For so many more, their stacks and their work."""
    return sys.platform != "linux" or (_memory_for(threads) and threads + _TASKS_SPARE <= tasks_left())


def _memory_for(threads: int) -> bool:
    import resource

    limits = {_WHOLE: resource.getrlimit(resource.RLIMIT_AS)[0], _DATA: resource.getrlimit(resource.RLIMIT_DATA)[0]}
    limited = {field: limit for field, limit in limits.items() if limit != resource.RLIM_INFINITY}
    if not limited:
        return True
    stated = resource.getrlimit(resource.RLIMIT_STACK)[0]
    needed = threads * (_STACK if stated == resource.RLIM_INFINITY else stated) + _SPARE
    used, page = _STATM.read_text(encoding="ascii").split(), resource.getpagesize()
    return all(int(used[field]) * page + needed <= limit for field, limit in limited.items())
