"""The life of a worker: one call after the other, until its caller is gone."""

from __future__ import annotations

import gc
import os
import select
import signal
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from halfwise.core.child.allowance import Allowance
from halfwise.core.child.black_box import BlackBox, attach
from halfwise.core.child.guard import end_with_parent, go_first, limit_memory
from halfwise.core.exhausted import out_of_memory
from halfwise.core.one_thread import on_one_thread
from halfwise.emulation.arena import shrink
from halfwise.model.model import load
from halfwise.model.travel import pack, unpack
from halfwise.verbs.contained.message import Answer, Ask, Call, Died, Failed, Told
from halfwise.verbs.contained.remote import callers, own_error
from halfwise.verbs.contained.wire import receive, send

__all__ = ["readable", "serve"]

_LOOK_S = 1.0


def serve(words: Sequence[str]) -> NoReturn:
    """Its words: the module to load at once, the process that it serves, its connection, and the file that tells
    what it does. The calls are made in a process forked from this one, which is replaced where it dies of one.
    """
    preloaded, caller, connected, told = words
    connection: Connection[Any, Any] = Connection(int(connected))
    go_first()
    if memory := Allowance.of_environment().memory:
        limit_memory(memory)
    with suppress(Exception):  # the call tells
        import_module(preloaded)
    gc.freeze()  # what is loaded is not looked through again, which would copy it for each process
    while True:
        number = _ended(connection, Path(told), int(caller))
        if not BlackBox(Path(told)).read():  # it may have died while it answered: a half of that would be on its way
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        send(connection, Died(-number))


def _ended(connection: Connection[Any, Any], told: Path, caller: int) -> int:
    """Of what signal a process that made calls died; this one ends with its caller."""
    lives, held = os.pipe()
    child = os.fork()
    if not child:
        end_with_parent()
        _serve(connection, told)
    os.close(held)
    while not select.select([lives], [], [], _LOOK_S)[0]:
        if os.getppid() != caller:
            os.killpg(0, signal.SIGKILL)
    os.close(lives)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        os._exit(code)
    return -code


def _serve(connection: Connection[Any, Any], told: Path) -> NoReturn:
    def ask(what: Ask) -> Told | Failed:
        send(connection, what)
        said: Told | Failed = receive(connection)
        return said

    callers.append(ask)
    while True:
        try:
            call: Call = receive(connection)
        except (EOFError, OSError):
            os._exit(0)
        attach(BlackBox(told, call.fatal))
        answer = _answer(call)
        try:
            send(connection, answer)
        except OSError as error:  # no memory for its arrays
            send(connection, Failed.of(error))
        del call, answer
        shrink()


def readable(source: Any) -> None:
    """Whether a model is read without an end of the process; what is raised is raised to the caller, too."""
    load(source)


def _answer(call: Call) -> Answer | Failed:
    module, _, name = call.home.partition(":")
    try:
        os.chdir(call.folder)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", DeprecationWarning)
            args, kwargs = unpack(call.packed)
            with on_one_thread():
                value = getattr(import_module(module), name)(*args, **kwargs)
        return Answer(pack((value, [each.message for each in said])))
    except BaseException as error:
        shown = MemoryError(str(error)).with_traceback(error.__traceback__) if out_of_memory(error) else error
        return Failed.of(shown, own_error(error))
