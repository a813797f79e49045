"""What control groups, such as that of a container, leave this process: tasks, memory and cores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

__all__ = ["cores_allowed", "memory_free", "memory_left", "tasks_left"]

_GROUP, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")
_UNKNOWN = 10 << 30  # bytes, where the system does not say what is free
_UNIFIED = "unified"  # where version 2 lies beside version 1
_FROM_FILES = ("inactive_file", "active_file")  # bytes of memory that the system takes back when it is wanted
_OF_ALL = "total_"  # before these names, in version 1: with those of groups within


def tasks_left() -> float:
    """How many more may start; infinite where nothing limits them."""
    return min(
        (_number(group / "pids.max") - _used(group / "pids.current") for group in _groups("pids")), default=math.inf
    )


def memory_free() -> float:
    """Bytes that may be taken here: what the system has left, or a container allows."""
    free = 0
    with suppress(OSError, ValueError):
        for line in _MEMORY.read_text(encoding="ascii").splitlines():
            name, value, *_ = line.split()
            free = 1024 * int(value) if name == "MemAvailable:" else free
    return min(free or _UNKNOWN, memory_left())


def memory_left() -> float:
    """Bytes that may still be taken; infinite where nothing limits them."""
    left = math.inf
    for group in _groups("memory"):
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            left = min(left, max(_number(group / most) - _used(group / used) + _from_files(group), 0.0))
    return left


def cores_allowed() -> float:
    """So many cores' time, which need be no whole number; infinite where nothing limits it."""
    allowed = math.inf
    for group in _groups("cpu"):
        with suppress(OSError, ValueError):
            quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
            allowed = min(allowed, int(quota) / int(period))
        quota_us, period_us = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
        if quota_us > 0 and 0 < period_us < math.inf:
            allowed = min(allowed, quota_us / period_us)
    return allowed


def _groups(controller: str) -> Iterator[Path]:
    """The folders of the groups that this process is in, each limit of which holds, up to the root: a container may see
    its own group as that."""
    with suppress(OSError, ValueError):
        for line in _GROUP.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            names = [name for name in PurePosixPath(path).parts if name not in ("/", "..")]
            for root in [_GROUPS / controller] if controllers else [_GROUPS, _GROUPS / _UNIFIED]:
                yield from (root.joinpath(*names[:depth]) for depth in range(len(names) + 1))


def _number(file: Path) -> float:
    """Infinite where the file is not there, or says that there is no limit."""
    with suppress(OSError, ValueError):
        return int(file.read_text(encoding="ascii"))
    return math.inf


def _used(file: Path) -> float:
    return used if (used := _number(file)) < math.inf else 0.0


def _from_files(group: Path) -> int:
    found: dict[str, int] = {}
    with suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
            name, value = line.split()
            found[name] = int(value)
    return sum(found.get(_OF_ALL + name, found.get(name, 0)) for name in _FROM_FILES)
