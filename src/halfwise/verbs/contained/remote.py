"""In a worker: what stayed with its caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from halfwise.core.child.packed import Packed
from halfwise.core.errors import InputError
from halfwise.model.model import Model, load
from halfwise.model.travel import pack, unpack
from halfwise.verbs.contained.message import NOTHING, Ask, Failed, Told

__all__ = ["RemoteFunction", "RemoteIterable", "callers", "loaded_again", "own_error"]

Caller = Callable[[Ask], "Told | Failed"]

callers: list[Caller] = []  # of this process: one, in a worker
_OWN = "_halfwise_own"


@dataclass(frozen=True)
class RemoteFunction:
    """Called where the caller is. It is known by the function's identity, whatever its number is in this call."""

    number: int = field(compare=False)
    identity: str
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return unpack(_asked(Ask(self.number, "call", pack((args, kwargs)))) or NOTHING)

    def __getstate__(self) -> object:
        return self.identity


@dataclass(frozen=True)
class RemoteIterable:
    number: int

    def __iter__(self) -> Iterator[Any]:
        iterator = unpack(_asked(Ask(self.number, "iter")) or NOTHING)
        while (packed := _asked(Ask(iterator, "next"))) is not None:
            yield unpack(packed)


def _asked(ask: Ask) -> Packed | None:
    said = callers[0](ask)
    if isinstance(said, Failed):
        error = said.error()
        setattr(error, _OWN, said.own)
        raise error
    return said.packed


def own_error(error: BaseException) -> int | None:
    """The number of the caller's error that this one is."""
    return getattr(error, _OWN, None)


def loaded_again(path: str, sha256: str) -> Model:
    """A model that the caller loaded from a file."""
    model = load(path)
    if model.sha256 != sha256:
        raise InputError(f"{path} has changed since it was loaded: load it again")
    return model
