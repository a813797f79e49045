"""What runs in the process of a job: the verb, as a user would call it, with its answer and its words in a folder."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from halfwise.core.child.black_box import BlackBox, attach
from halfwise.core.errors import InputError
from halfwise.core.one_thread import on_one_thread
from halfwise.fleet.outcome import ANSWER, LOG, NO_FOLDER

__all__ = ["CALL", "MOST_SAMPLES", "OUT", "Order", "prepare", "verb_named", "work"]

OUT = "out"
CALL = ".call"  # beside it: what the job does in native code, while it runs
MOST_SAMPLES = 1_000
_INPUTS = "inputs"


@dataclass(frozen=True)
class Order:
    """All that a job's process has to know."""

    words: tuple[str, ...]  # of the command line, without the inputs of a function
    folder: str
    function: str
    imports: str  # the folder in which the user's functions are looked for first; empty: there are none
    cores: tuple[int, ...] = ()  # to keep to; empty: all
    cwd: str = ""  # where its words start; empty: where the fleet was started
    refused: tuple[tuple[str, str], ...] = ()  # native calls that ended it before, in hexadecimal, and how they did
    cluster: tuple[str, str, int] | None = None  # whose idle cores may help, and where it says how many these are


Verb = Callable[[Sequence[str]], int]


def prepare() -> None:
    """Load what every job needs, once, in the process that the jobs are forked from."""
    with suppress(Exception):
        for name in ("numpy", "onnx", "onnx_ir", "onnxruntime", "halfwise.report.html.fix_report"):
            import_module(name)


def verb_named(name: str) -> Verb:
    """Of "module:function"."""
    module, _, function = name.partition(":")
    verb: Verb = getattr(import_module(module), function)
    return verb


def work(data: Mapping[str, Any]) -> int:
    """Run the verb in this process, which ends with its exit code: `data` has the order and the verb's name."""
    order = Order(**data["order"])
    verb = verb_named(data["verb"])
    if order.cwd:
        os.chdir(order.cwd)
    if order.cores and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, order.cores)
    folder = Path(order.folder)
    try:
        _begin(folder)
    except OSError:
        return NO_FOLDER
    with suppress(OSError):
        attach(BlackBox(folder / CALL, {bytes.fromhex(call): how for call, how in order.refused}))
    try:
        words = list(order.words)
        if order.imports:
            sys.path.insert(0, order.imports)
        if order.function:
            words += ["--inputs", str(_samples(order, folder / _INPUTS))]
        sys.argv[1:] = words  # which the report tells
        with on_one_thread(), _helped(order, folder):
            code = verb(words)
    except InputError as error:
        print(f"halfwise: {error}", file=sys.stderr)
        code = 2
    except BaseException as error:
        print(f"halfwise: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        code = 4
    return code


@contextmanager
def _helped(order: Order, folder: Path) -> Iterator[None]:
    if order.cluster is None:
        yield
        return
    from halfwise.fleet.helped import Cluster, helped

    with helped(Cluster(*order.cluster), folder):
        yield


def _begin(folder: Path) -> None:
    """Nothing is left of the run before, or of who put a link in the place of a file of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (ANSWER, LOG, CALL):
        (folder / name).unlink(missing_ok=True)
    _redirect(folder / ANSWER, folder / LOG)


def _redirect(answer: Path, log: Path) -> None:
    """Output goes to the answer, errors to the log, also those of native libraries; there is nothing to read."""
    modes = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    for number, opened in (
        (0, os.open(os.devnull, os.O_RDONLY)),
        (1, os.open(answer, modes, 0o666)),
        (2, os.open(log, modes, 0o666)),
    ):
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _samples(order: Order, folder: Path) -> Path:
    """What the user's function gives, one file a sample."""
    import numpy as np

    module, _, name = order.function.partition(":")
    started = time.monotonic()
    try:
        made: Any = getattr(import_module(module), name)()
        if folder.is_symlink():
            raise InputError(f"{folder} is a link to another folder: remove it")
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.npz"):
            old.unlink()
        count = -1
        for count, sample in enumerate(islice(made, MOST_SAMPLES)):
            arrays: dict[str, Any] = {key: np.asarray(value) for key, value in sample.items()}
            np.savez(folder / f"{count:04d}.npz", **arrays)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the function {order.function} failed after {time.monotonic() - started:.0f} s: "
            f"{type(error).__name__}: {error}; it gives samples, each a dictionary of arrays by input name"
        ) from None
    if count < 0:
        raise InputError(f"the function {order.function} gave no sample")
    return folder
