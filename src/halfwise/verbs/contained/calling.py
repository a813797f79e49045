"""Runs a public function in a process of its own, so that native code that dies there is an error here.

What a caller gives besides files, arrays and plain values stays here: functions are called and iterables are read in
the caller's process. Where something else is given, such as a runner of the caller's own, the call runs here.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from halfwise.core.child.allowance import TIME, Allowance
from halfwise.core.child.packed import Packed
from halfwise.core.child.process import Ended
from halfwise.core.errors import InputError
from halfwise.core.one_thread import on_one_thread
from halfwise.model.model import Model
from halfwise.model.travel import unpack
from halfwise.verbs.contained.given import Given, Untravelled
from halfwise.verbs.contained.message import Answer, Ask, Call, Failed, Told
from halfwise.verbs.contained.pool import Worker, contains, taken
from halfwise.verbs.contained.serve import readable as in_worker

__all__ = ["contained", "tried"]


def contained(function: Callable[..., Any], home: str) -> Callable[..., Any]:
    """The function, run in a worker; `home` is where that finds it, such as "package.module:name"."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not contains():
            return _here(function, args, kwargs)
        given = Given()
        try:
            packed = given.pack((args, kwargs))
        except Untravelled:
            return _here(function, args, kwargs)
        value, warned = unpack(_Calling(home, given, packed).answer().packed)
        for warning in warned:
            warnings.warn(warning, stacklevel=2)
        return value

    return call


def _here(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    with on_one_thread():
        return function(*args, **kwargs)


def tried(function: Callable[[Any], Model]) -> Callable[[Any], Model]:
    """The function that reads a model here, once a worker has read the same one."""
    readable = contained(in_worker, f"{in_worker.__module__}:{in_worker.__name__}")

    @wraps(function)
    def read(source: Any) -> Model:
        readable(source)
        return function(source)

    return read


@dataclass(frozen=True)
class _Calling:
    """One call: made again where a worker dies of something that can be left out."""

    home: str
    given: Given
    packed: Packed
    fatal: dict[bytes, str] = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance.of_environment)
    started: float = field(default_factory=time.monotonic)

    def answer(self) -> Answer:
        while True:
            with taken(self.home.partition(":")[0]) as worker:
                last = self._asked(worker)
                box = worker.box(self.fatal)
                doing = box.doing
            if isinstance(last, Answer):
                return last
            if isinstance(last, Failed):
                raise self.given.raised[last.own] if last.own is not None else last.error()
            again = not last.timed_out and last.returncode < 0 and box.refuse(-last.returncode)
            if not again or self.given.read:
                raise InputError(self._told(last, doing))
            self.fatal.update(box.fatal)

    def _asked(self, worker: Worker) -> Answer | Failed | Ended:
        """The last that a worker says, which may be its end."""
        worker.send(Call(self.home, self.packed, str(Path.cwd()), self.fatal))
        while isinstance(said := worker.receive(self.started, self.allowance.seconds), Ask):
            worker.send(self._done(said))
        last: Answer | Failed | Ended = said
        return last

    def _done(self, ask: Ask) -> Told | Failed:
        try:
            return Told(self.given.do(ask))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.given.raised.append(error)
            return Failed.of(error, len(self.given.raised) - 1)

    def _told(self, ended: Ended, doing: str) -> str:
        name = self.home.partition(":")[2]
        meanwhile = f" while {doing}" if doing else ""
        if ended.timed_out:
            return f"{name} was stopped after {ended.time_limit_s:g} s ({TIME}){meanwhile}"
        return f"the worker of {name} {ended.describe()}{meanwhile}"
