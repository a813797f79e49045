"""Runs jobs on this machine: one process each, as many at once as cores and memory allow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from halfwise.core.child.black_box import BlackBox
from halfwise.core.child.forks import Processes
from halfwise.core.child.kept import forked
from halfwise.core.child.process import Ended, log_tail
from halfwise.core.control_groups import memory_free
from halfwise.fleet.outcome import LOG, Outcome, ended
from halfwise.fleet.work import CALL, Order, Verb

__all__ = ["Limits", "Place", "Task", "memory_here", "name_of", "run_here"]

_TICK_S = 0.1
_KEPT_BACK = 0.8  # of the free memory that a fleet takes where nothing else is said
_STOP_S = 10.0  # within which a killed process is gone
_SPARE = 1.2  # of what a job held when it was stopped for others


@dataclass(frozen=True)
class Task:
    """A job with its folder and what it is thought to take."""

    order: Order
    memory: int  # bytes that it is expected to need
    most_memory: int  # bytes at which it is stopped
    seconds: float
    bounded: bool = False  # whether a user said how much that may be
    reads: tuple[str, ...] = ()  # every file that it reads, as its words name it or below a folder that they name
    gpus: int = 0


@dataclass(frozen=True)
class Limits:
    processes: int
    memory: int


@dataclass(frozen=True)
class Place:
    """One running job. `peak_bytes` is the most that it held, `bytes` what it holds now."""

    index: int
    task: Task
    process: int
    started: float
    since: float
    cores: tuple[int, ...]
    bytes: int = 0
    peak_bytes: int = 0


Report = Callable[[int, Outcome], None]
Shown = Callable[[Sequence[Place], int], None]


def run_here(tasks: Sequence[Task], verb: Verb, limits: Limits, report: Report, shown: Shown) -> None:
    """Every task once; `report` gets each outcome as it comes, `shown` what runs and how many wait.

    No process outlives an interruption, or the end of this one.
    """
    waiting = list(range(len(tasks)))
    if not waiting:
        return
    started = forked(("halfwise.fleet.preload", verb.__module__))
    needs = [task.memory for task in tasks]
    running: dict[int, Place] = {}  # by index; one that begins again is in it at once, so that it is stopped, too
    slots = _slots(min(limits.processes, len(tasks)))
    try:
        while waiting or running:
            while (index := _next(tasks, needs, waiting, list(running.values()), limits)) is not None:
                waiting.remove(index)
                cores = next(each for each in slots if all(place.cores is not each for place in running.values()))
                running[index] = _start(started, index, tasks[index], verb, cores)
            shown(list(running.values()), len(waiting))
            codes = started.ended(_TICK_S)
            for index, place in [(index, _measured(place)) for index, place in running.items()]:
                running[index] = place
                if (spared := _without_its_end(place, codes)) is not None:
                    process = _process(started, spared, verb, place.cores)
                    running[index] = replace(place, task=spared, process=process)
                    continue
                outcome = _outcome(place, codes)
                if outcome is None:
                    continue
                if place.process not in codes:
                    _stop(started, place)
                del running[index]
                with suppress(OSError):
                    Path(place.task.order.folder, CALL).unlink()
                report(index, outcome)
            if len(running) > 1 and sum(place.bytes for place in running.values()) > limits.memory:
                index, last = running.popitem()  # it begins anew when the others leave it room
                _stop(started, last)
                needs[index] = max(needs[index], round(_SPARE * last.peak_bytes))
                waiting.insert(0, index)
    finally:
        for place in running.values():
            _stop(started, place)


def name_of(verb: Verb) -> str:
    return f"{verb.__module__}:{verb.__qualname__}"


def memory_here() -> int:
    """Bytes that a fleet may take: most of what is free, or of what a container allows."""
    return round(_KEPT_BACK * memory_free())


def _slots(processes: int) -> list[tuple[int, ...]]:
    """The cores of each place, so that two jobs do not fight for one; all of them where they cannot be divided."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(cores) // processes
    if share < 1:
        return [(*cores,) for _ in range(processes)]
    return [tuple(cores[i * share : (i + 1) * share]) for i in range(processes)]


def _next(
    tasks: Sequence[Task], needs: Sequence[int], waiting: Sequence[int], running: Sequence[Place], limits: Limits
) -> int | None:
    """The first that fits beside those that run, one on a GPU at a time; one always does where nothing runs."""
    if len(running) >= limits.processes:
        return None
    taken = sum(max(needs[place.index], place.bytes) for place in running)
    on_gpu = any(place.task.gpus for place in running)
    for index in waiting:
        if not running or (taken + needs[index] <= limits.memory and not (on_gpu and tasks[index].gpus)):
            return index
    return None


def _start(started: Processes, index: int, task: Task, verb: Verb, cores: tuple[int, ...]) -> Place:
    number = _process(started, task, verb, cores)
    return Place(index, task, number, time.time(), time.monotonic(), cores)


def _process(started: Processes, task: Task, verb: Verb, cores: tuple[int, ...]) -> int:
    data = {"order": asdict(replace(task.order, cores=cores)), "verb": name_of(verb)}
    return started.start("halfwise.fleet.work:work", data)


def _without_its_end(place: Place, codes: Mapping[int, int]) -> Task | None:
    """The task again, without the native call that ended its process; None where that did not happen."""
    if codes.get(place.process, 0) >= 0:
        return None
    with suppress(OSError, ValueError):
        refused = {bytes.fromhex(call): how for call, how in place.task.order.refused}
        box = BlackBox(Path(place.task.order.folder, CALL), refused)
        if box.refuse(-codes[place.process]):
            fatal = tuple((call.hex(), how) for call, how in box.fatal.items())
            return replace(place.task, order=replace(place.task.order, refused=fatal))
    return None


def _measured(place: Place) -> Place:
    held = _resident(place.process)
    return replace(place, bytes=held, peak_bytes=max(place.peak_bytes, held))


def _outcome(place: Place, codes: Mapping[int, int]) -> Outcome | None:
    """None of a job that goes on; one that is beyond its limits is to be stopped."""
    seconds = time.monotonic() - place.since
    code = codes.get(place.process)
    if code is None:
        if seconds > place.task.seconds:
            why = f"stopped after {place.task.seconds:g} s, its limit (seconds = ...)"
            return Outcome("over time", why, place.started, seconds, place.peak_bytes)
        if place.peak_bytes > place.task.most_memory:
            why = f"stopped at {place.peak_bytes / 1e9:.2f} GB; its limit is {place.task.most_memory / 1e9:.2f} GB"
            return Outcome("over memory", why, place.started, seconds, place.peak_bytes)
        return None
    folder = Path(place.task.order.folder)
    if code < 0:
        how = Ended(code, seconds, place.task.seconds, timed_out=False).tell("it ran", log_tail(folder / LOG))
        return Outcome("died", how, place.started, seconds, place.peak_bytes)
    return ended(folder, code, place.started, seconds, place.peak_bytes)


def _stop(started: Processes, place: Place) -> None:
    """Its memory is free when this returns."""
    started.kill(place.process)
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline and _resident(place.process):
        time.sleep(_STOP_S / 1000)


def _resident(pid: int) -> int:
    """Bytes that a process and its children hold in memory of their own; 0 where that is not told."""
    total = _field(Path(f"/proc/{pid}/status"), "RssAnon:")
    with suppress(OSError, ValueError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            total += _resident(int(child))
    return total


def _field(path: Path, name: str) -> int:
    """A number of kB in a file of /proc, as bytes."""
    with suppress(OSError, ValueError, IndexError), path.open(encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) << 10
    return 0
