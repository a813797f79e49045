"""The user's own metric: a function that is imported by its name."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.metrics import OutputMetric

__all__ = ["load_metric"]

Array = NDArray[Any]


def load_metric(spec: str) -> OutputMetric:
    """Import the user's function `package.module:function`; modules in the current directory are found, too.

    It gets the reference outputs and the other outputs, each a dict by name, and returns one error: 0 is perfect,
    larger is worse. NaN means that the error cannot be told and reads as infinite.
    """
    module_name, colon, attribute = spec.strip().partition(":")
    if not (colon and module_name and attribute):
        raise InputError(f"--metric {spec!r}: write package.module:function")
    try:
        with _apart(), _current_directory_importable():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise InputError(
                f"--metric {spec}: there is no module {error.name!r} here or among the installed packages"
            ) from error
        raise InputError(f"--metric {spec}: importing {module_name} failed: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InputError(f"--metric {spec}: importing {module_name} failed: {_told(error)}") from error
    try:
        function = reduce(getattr, attribute.split("."), module)
    except Exception:
        raise InputError(f"--metric {spec}: module {module_name} has no {attribute!r}") from None
    if not callable(function):
        raise InputError(f"--metric {spec}: {attribute} is not a function")

    return _Named(spec, function)


@dataclass(frozen=True)
class _Named:
    """A function of the user's, and the name that they gave it."""

    spec: str
    function: Callable[[Mapping[str, Array], Mapping[str, Array]], Any]

    def __call__(self, reference: Mapping[str, Array], other: Mapping[str, Array]) -> float:
        try:
            with _apart():
                answer = self.function(reference, other)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise InputError(f"--metric {self.spec} failed: {_told(error)}") from error
        try:
            value = float(answer)
        except Exception:
            raise InputError(f"--metric {self.spec} returned {type(answer).__name__}, not one number") from None
        return math.inf if math.isnan(value) else value


@contextmanager
def _apart() -> Iterator[None]:
    """What it and its programs print is for people, as stdout is for the answer; the current folder stays as it was."""
    held = []
    with suppress(OSError):  # of a process without stdout
        held.append(os.dup(1))
        os.dup2(2, 1)
    try:
        with chdir("."), redirect_stdout(sys.stderr):
            yield
    finally:
        for file in held:
            os.dup2(file, 1)
            os.close(file)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)
