"""Work on a large array in blocks, on all cores: NumPy lets go of the interpreter while it works."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any, Self, TypeVar

from halfwise.core.control_groups import cores_allowed

__all__ = ["Helper", "ahead", "beside", "cores", "cores_here", "in_blocks"]

_MOST_THREADS = 8
_MOST_WAITING = 2  # tasks of a helper: what they read is kept for so long
_MOST_ELEMENTS = 1 << 24  # of what they read together, but for a single one
_SMALL = 1 << 22  # elements from which a task is worth handing over: the interpreter changes hands every 5 ms

_inside = threading.local()  # of the threads that work on blocks
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}  # by process and threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """The cores that this process may use."""
    return min(_kept_to() or _there(), _MOST_THREADS)


@cache
def _there() -> int:
    """Cores of the machine: asking takes as long as a small node."""
    return os.cpu_count() or 1


def _kept_to() -> int:
    """To how many cores this process is kept; 0 where it may use all."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isdecimal() and int(said):
        return int(said)
    allowed = cores_here()
    return allowed if allowed < _there() else 0


def cores_here() -> int:
    """The cores of the machine that the system lets this process run on, or the time of as many."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, min(len(affinity(0)) if affinity is not None else _there(), _time_of()))


@cache
def _time_of() -> int:
    """Of a part of a core as of a whole one."""
    return math.ceil(min(cores_allowed(), _there()))


def in_blocks(work: Callable[[int, int], Result], size: int, block: int) -> list[Result]:
    """What it gives for each start and stop, in their order."""
    spans = [(start, min(start + block, size)) for start in range(0, size, block)]
    threads = min(cores(), len(spans))
    if threads <= 1 or getattr(_inside, "working", False):  # whoever waits for others of its kind may wait for ever
        return [work(*span) for span in spans]
    found: dict[int, Result] = {}
    waiting = iter(range(len(spans)))  # whoever is free takes the next one: to hand each over takes as long as its work

    def worked() -> None:
        _inside.working = True
        try:
            for number in waiting:
                found[number] = work(*spans[number])
        finally:
            _inside.working = False
            deque(waiting, maxlen=0)  # where one fails, the others take no more

    helping = [_pool().submit(worked) for _ in range(threads - 1)]
    try:
        worked()
    finally:
        begun = [each for each in helping if not each.cancel()]
        wait(begun)
    for each in begun:
        each.result()
    return [found[number] for number in range(len(spans))]


def _pool() -> ThreadPoolExecutor:
    """Kept: to start threads takes as long as their work on a small array. A fork has none of them."""
    key = os.getpid(), cores()
    return _pools.get(key) or _pools.setdefault(key, ThreadPoolExecutor(cores()))


def ahead(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """What it gives for each item, in their order; on all cores the next ones are worked on while one is taken."""
    threads = min(cores(), len(items))
    if threads <= 1:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def beside(work: Callable[[], Result]) -> Future[Result]:
    """Goes on while others work; a program that ends does not wait for it."""
    made: Future[Result] = Future()

    def run() -> None:
        try:
            made.set_result(work())
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return made


class Helper:
    """One thread for what is wanted later; without a second core each task is done at once."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1) if cores() > 1 else None
        self._waiting: deque[tuple[Future[Any], int]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def ask(self, task: Callable[[], Result], elements: int) -> Callable[[], Result]:
        """Begin a task on so many elements; what is given back waits for its result. A small one is done at once."""
        if self._pool is None or elements < _SMALL:
            done = task()
            return lambda: done
        while self._waiting and (self._full(elements) or self._waiting[0][0].done()):
            self._waiting.popleft()[0].exception()
        future = self._pool.submit(task)
        self._waiting.append((future, elements))
        return future.result

    def _full(self, elements: int) -> bool:
        waiting = sum(each for _, each in self._waiting)
        return len(self._waiting) >= _MOST_WAITING or waiting + elements > _MOST_ELEMENTS
