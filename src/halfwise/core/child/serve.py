"""The child's side of a worker: answers one request after another until its parent is done or gone."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

from halfwise.core.child.arrays import Arrays, read_arrays, write_arrays
from halfwise.core.child.guard import end_with_parent, go_first
from halfwise.core.errors import HalfwiseError, MissingBackend, NoRoom
from halfwise.core.exhausted import FULL, no_temporary_room
from halfwise.core.freed_memory import give_back_memory, one_heap

__all__ = ["Answer", "Request", "channels", "guard_child", "serve"]

# What is left to a child after the time limit of a request, should the parent be gone and nobody else end it.
_ORPHAN_GRACE_S = 15.0


@dataclass(frozen=True)
class Request:
    """What a function in a child is asked: JSON values and arrays. `notify` tells the parent how far it is."""

    data: Mapping[str, Any]
    arrays: tuple[Arrays, ...]
    notify: Callable[[str], None]


@dataclass(frozen=True)
class Answer:
    """What it answers: JSON values, and arrays, which may be made one after another."""

    data: Mapping[str, Any]
    arrays: Iterable[Arrays] = ()


def serve() -> NoReturn:
    """The whole life of a child. A line in names a folder with a request; lines out are events as JSON objects."""
    asked, events = channels()
    guard_child()
    for line in asked:
        folder = Path(json.loads(line))
        request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
        _end_after(request["time_limit_s"] + _ORPHAN_GRACE_S)
        event = _event(folder, request, events)
        _end_after(0.0)
        sys.stdout.flush()
        sys.stderr.flush()
        _tell(events, event)
        give_back_memory()
    os._exit(0)  # without the native library's teardown, which has nothing left to do but crash


def guard_child() -> None:
    """Let this process end with its parent, be the first to go when memory is out, and keep little that it freed."""
    end_with_parent()
    go_first()
    one_heap()


def channels() -> tuple[IO[str], IO[str]]:
    """Private copies of input and output: what a library prints goes to the log, and it finds nothing to read."""
    asked = os.fdopen(os.dup(0), encoding="utf-8")
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return asked, events


def _event(folder: Path, request: Mapping[str, Any], events: IO[str]) -> dict[str, Any]:
    arrays = tuple(read_arrays(folder / f"in-{index}.npz") for index in range(request["arrays"]))
    module, _, name = request["function"].partition(":")
    try:
        function = getattr(import_module(module), name)
        answer = function(Request(request["data"], arrays, lambda text: _tell(events, {"progress": text})))
        count = 0
        for count, each in enumerate(answer.arrays, 1):
            write_arrays(folder / f"out-{count - 1}.npz", each)
        return {"answer": answer.data, "arrays": count}
    except MissingBackend as error:
        return {"missing": str(error)}
    except NoRoom as error:
        return {"full": str(error)}
    except HalfwiseError as error:
        return {"failed": str(error)}
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            named = f"{error.filename}: {error.strerror}; make room there"
            return {"full": named if error.filename else no_temporary_room(error.strerror)}
        sys.excepthook(type(error), error, error.__traceback__)
        return {"failed": f"{type(error).__name__}: {error}"}


def _tell(events: IO[str], event: Mapping[str, Any]) -> None:
    events.write(json.dumps(event, default=str) + "\n")
    events.flush()


def _end_after(seconds: float) -> None:
    if sys.platform != "win32":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
