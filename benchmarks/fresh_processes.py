"""Fresh processes, with their times and the peaks of their memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["Measured", "measured", "medians"]

SAMPLE_S = 0.05
_HIGHER = 1.02  # times the last peak: worth asking what is shared


@dataclass(frozen=True)
class Measured:
    """One fresh process. `told` is the last line that it printed."""

    what: str
    seconds: float
    cpu: float
    own: float
    children: float
    all: float
    told: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def measured(what: str, code: Sequence[str], limit_s: float) -> Measured:
    """A fresh interpreter that runs the code, with its peak of memory."""
    print(f"{what} ...", file=sys.stderr, flush=True)
    started, before = time.perf_counter(), _of_ended()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, "-c", *code], stdout=out, stderr=errors)
        own = most = children = whole = cpu = 0.0
        while process.poll() is None:
            now = [_status(each) for each in _tree(process.pid)]
            here, there, used = (sum(column) for column in zip(*now, strict=True))
            children = max(children, here - now[0][0])
            if here > _HIGHER * most:
                most, own = here, max(own, here if len(now) == 1 else _shared_once(process.pid))
            whole, cpu = max(whole, there), max(cpu, used)
            if time.perf_counter() - started > limit_s:
                process.kill()
            time.sleep(SAMPLE_S)
        seconds, cpu = time.perf_counter() - started, max(cpu, _of_ended() - before)
        out.seek(0)
        errors.seek(0)
        lines, said = out.read().splitlines(), errors.read().strip().splitlines()
    if process.returncode:
        problem = f"stopped after {limit_s:.0f} s" if seconds > limit_s else (said or ["failed"])[-1]
        return Measured(what, seconds, cpu, own, children, whole, problem=problem)
    return Measured(what, seconds, cpu, own, children, whole, json.loads(lines[-1]))


def _tree(pid: int) -> list[int]:
    """A process and its children, and theirs."""
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        for thread in Path(f"/proc/{found[-1]}/task").glob("*/children"):  # a child belongs to the thread that made it
            with suppress(OSError):
                waiting += map(int, thread.read_text().split())
    return found


def _of_ended() -> float:
    """The CPU seconds of all processes that this one and its children waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _shared_once(pid: int) -> float:
    """Own memory of a process and its children in GB."""
    total = 0
    for each in _tree(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total * 1024 / 1e9


def _status(pid: int) -> tuple[float, float, float]:
    """Own and all resident memory in GB, and the seconds of all threads."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0, 0.0
    kept = {line.split(":")[0]: line.split()[1] for line in text.splitlines() if len(line.split()) > 1}
    own = sum(int(kept.get(name, 0)) for name in ("RssAnon", "RssShmem"))
    ticks = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    return own * 1024 / 1e9, int(kept.get("VmHWM", 0)) * 1024 / 1e9, ticks


def medians(several: Sequence[Measured]) -> Measured:
    """Of the same, measured again and again: of what takes the median, with the median times and the highest peaks."""
    by_cpu = sorted(several, key=lambda each: each.cpu)
    one = next((each for each in several if each.problem), by_cpu[(len(by_cpu) - 1) // 2])
    numbers = {name: value for name, value in one.told.items() if isinstance(value, float)}
    told = {**one.told, **{name: median(each.told[name] for each in several) for name in numbers if not one.problem}}
    return replace(
        one,
        seconds=median(each.seconds for each in several),
        cpu=median(each.cpu for each in several),
        own=max(each.own for each in several),
        children=max(each.children for each in several),
        all=max(each.all for each in several),
        told=told,
    )
