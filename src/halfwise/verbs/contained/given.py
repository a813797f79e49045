"""What a caller gave, as it is sent to a worker: files, arrays and plain values go, functions and iterables stay."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from halfwise.core.child.packed import Packed
from halfwise.core.errors import InputError
from halfwise.core.metric_identity import metric_identity
from halfwise.model.model import Model
from halfwise.model.travel import pack, unpack
from halfwise.verbs.contained.message import Ask
from halfwise.verbs.contained.remote import RemoteFunction, RemoteIterable, loaded_again

__all__ = ["Given", "Untravelled"]

# Packages whose objects are the same in a worker.
_COMMON = frozenset(
    "builtins collections copyreg datetime decimal enum fractions functools google halfwise ml_dtypes msgspec numpy "
    "onnx onnx_ir operator _operator pathlib types uuid".split()
)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)


class Untravelled(Exception):
    """Something that a worker cannot be given."""


@dataclass(frozen=True)
class Given:
    """Objects that stayed here, by their numbers; `read`: those that can be read once only and were begun.

    `raised`: what the caller's own code raised.
    """

    objects: list[Any] = field(default_factory=list)
    read: list[Iterator[Any]] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)

    def pack(self, values: Any) -> Packed:
        try:
            return pack(values, self._reduced, whole=True)
        except Exception as error:
            raise Untravelled(f"{type(error).__name__}: {error}") from error

    def do(self, ask: Ask) -> Packed | None:
        """What a worker asks of an object that stayed here; None where there is no more."""
        asked = self.objects[ask.number]
        if ask.does == "call":
            args, kwargs = unpack(ask.packed)
            return self._answer(asked(*args, **kwargs))
        if ask.does == "iter":
            return self._answer(self._keep(iter(asked)))
        if not any(asked is iterable for iterable in self.read):
            self.read.append(asked)
        try:
            return self._answer(next(asked))
        except StopIteration:
            return None

    def _answer(self, value: Any) -> Packed:
        try:
            return self.pack(value)
        except Untravelled as error:
            raise InputError(f"what {type(value).__name__} holds cannot be sent to a worker ({error})") from error

    def _keep(self, obj: Any) -> int:
        self.objects.append(obj)
        return len(self.objects) - 1

    def _reduced(self, obj: Any) -> Any:
        """As a pickler's `reducer_override`."""
        if type(obj) is Model and obj.path is not None and obj.given is None and not obj.watched:
            return loaded_again, (str(obj.path.absolute()), obj.sha256)
        if isinstance(obj, (type, types.ModuleType)):
            return _by_name(obj)
        if isinstance(obj, _FUNCTIONS):
            return NotImplemented if _is_common(obj) else self._function(obj)
        if isinstance(obj, Iterator):
            return RemoteIterable, (self._keep(obj),)
        if type(obj).__module__.partition(".")[0] in _COMMON:
            return NotImplemented
        if isinstance(obj, os.PathLike):
            return Path, (os.fspath(obj),)
        if hasattr(obj, "__array__"):
            return np.array, (np.asarray(obj),)
        if isinstance(obj, Mapping):
            return dict, (list(obj.items()),)
        if callable(obj):
            return self._function(obj)
        if isinstance(obj, Iterable):
            return RemoteIterable, (self._keep(obj),)
        raise Untravelled(f"an object of {type(obj).__qualname__}")

    def _function(self, obj: Callable[..., Any]) -> Any:
        return RemoteFunction, (self._keep(obj), metric_identity(obj), getattr(obj, "__qualname__", type(obj).__name__))


def _by_name(obj: Any) -> Any:
    module = obj.__module__ if isinstance(obj, type) else obj.__name__
    if module.partition(".")[0] not in _COMMON:
        raise Untravelled(f"{obj.__name__} of {module}")
    return NotImplemented


def _is_common(function: Any) -> bool:
    """Whether the worker finds the same function by its name, and it holds nothing of the caller's."""
    if not isinstance(getattr(function, "__self__", None), (types.ModuleType, types.NoneType)):
        return False  # a method
    name, module = function.__qualname__, function.__module__ or "builtins"
    return module.partition(".")[0] in _COMMON and "<" not in name and not hasattr(function, "__wrapped__")
