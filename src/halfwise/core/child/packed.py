"""Objects as bytes on their way to another process."""

from __future__ import annotations

from dataclasses import dataclass
from pickle import PickleBuffer

__all__ = ["Array", "Packed"]

Array = PickleBuffer | memoryview  # before its way, and after


@dataclass(frozen=True)
class Packed:
    """A pickle, and the arrays that are not in it."""

    body: bytes
    arrays: tuple[Array, ...] = ()
