"""What a checkpoint is: tensors by name, each known by where it lies."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

from halfwise.core.notes import Note
from halfwise.model.elements import Elements

__all__ = ["Checkpoint", "StoredTensor"]


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """One tensor of floating-point numbers, under its first name; `elements` are in the order of `shape`."""

    name: str
    dtype: str  # a key of STORED_TYPES
    shape: tuple[int, ...]
    elements: Elements
    aliases: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The tensors of one network. `other_names` are those that hold no floating-point numbers."""

    path: Path
    files: tuple[Path, ...]
    tensors: tuple[StoredTensor, ...]
    other_names: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()

    @classmethod
    def joined(cls, path: Path, parts: Iterable[Checkpoint]) -> Checkpoint:
        """Shards as one."""
        kept = list(parts)
        return cls(
            path,
            tuple(file for part in kept for file in part.files),
            tuple(tensor for part in kept for tensor in part.tensors),
            tuple(name for part in kept for name in part.other_names),
            tuple(dict.fromkeys(note for part in kept for note in part.notes)),
        )


class Aliases:
    """Gathers the names of tensors that lie in the same place."""

    def __init__(self) -> None:
        self._names: dict[Hashable, list[str]] = {}

    def known(self, place: Hashable, name: str) -> bool:
        """Notes a name, and says whether the place had one already."""
        names = self._names.setdefault(place, [])
        names.append(name)
        return len(names) > 1

    def of(self, place: Hashable) -> tuple[str, ...]:
        return tuple(self._names[place][1:])
