"""What a caller's process and its worker say to each other."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from halfwise.core.child.packed import Packed
from halfwise.core.errors import HalfwiseError, InputError, MissingBackend

__all__ = ["NOTHING", "Answer", "Ask", "Call", "Died", "Failed", "Told"]


NOTHING = Packed(b"")


@dataclass(frozen=True)
class Call:
    """A function by its home, and its packed arguments. `fatal`: native calls that ended a worker before."""

    home: str
    packed: Packed
    folder: str
    fatal: Mapping[bytes, str]


@dataclass(frozen=True)
class Answer:
    """The value and the warnings on the way, packed."""

    packed: Packed


@dataclass(frozen=True)
class Died:
    """The process that made the call is gone; another one waits for the next."""

    returncode: int


@dataclass(frozen=True)
class Ask:
    """Of something that stayed with the caller: call it, start to read it, or read on."""

    number: int
    does: Literal["call", "iter", "next"]
    packed: Packed = NOTHING


@dataclass(frozen=True)
class Told:
    """The answer to it; None where there is no more to read."""

    packed: Packed | None


@dataclass(frozen=True)
class Failed:
    """An error on its way; `own`: the number of the caller's error that it is."""

    packed: bytes
    kind: str
    text: str
    own: int | None = None
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException, own: int | None = None) -> Failed:
        try:
            packed = pickle.dumps(error, 5)
            pickle.loads(packed)
        except Exception:
            packed = b""
        kinds = (MissingBackend, InputError, HalfwiseError)
        kind = next((each.__name__ for each in kinds if isinstance(error, each)), type(error).__name__)
        where = "" if isinstance(error, HalfwiseError) else "".join(traceback.format_tb(error.__traceback__))
        return cls(packed, kind, str(error), own, where)

    def error(self) -> BaseException:
        """The error, or one that says the same."""
        try:
            error: BaseException = pickle.loads(self.packed)
        except Exception:
            known: dict[str, type[Exception]] = {
                each.__name__: each for each in (MissingBackend, InputError, HalfwiseError)
            }
            error = known[self.kind](self.text) if self.kind in known else RuntimeError(f"{self.kind}: {self.text}")
        if self.traceback:
            error.add_note(f"in the worker:\n{self.traceback}")
        return error
