"""One sample that is fed to a model, with the number that tells it from the others of its set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

__all__ = ["Feed"]


@dataclass(frozen=True, eq=False)
class Feed(Mapping[str, NDArray[Any]]):
    """Arrays by input name. Two feeds are the same where they are one object; within a set, the number tells."""

    id: int
    arrays: Mapping[str, NDArray[Any]]
    source: int | None = None  # the number of the feed that it is a variant of

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)
