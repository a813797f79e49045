"""A large constant in the table of a choice: what its rows and columns are under powers of two, read when asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halfwise.repair.scale_atoms import PINNED, Floats, Ints
from halfwise.repair.scale_blocks import LargeBlocks, Lines

__all__ = ["LargeTable", "Pools", "Side"]


@dataclass(frozen=True)
class Pools:
    """The blocks of one constant that scale alike, pooled: sum of mean squares, number, largest magnitude."""

    times: Floats
    soft: NDArray[np.bool_]
    total: Floats
    blocks: Floats
    top: Floats

    @classmethod
    def joined(cls, parts: list[Pools]) -> Pools:
        names = ("times", "soft", "total", "blocks", "top")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class Side(NamedTuple):
    """The rows, or the columns: the class of each, and how often its scale takes the class's power."""

    classes: Ints
    times: Floats

    def scale(self, power: Ints) -> Floats:
        found: Floats = self.times * power[self.classes]
        return found


@dataclass(frozen=True, eq=False)
class LargeTable:
    """Blocks whose row and column are of one class keep their size, and ask for nothing."""

    large: LargeBlocks
    rows: Side
    columns: Side
    _last: dict[bool, tuple[bytes, Lines]] = field(default_factory=dict)

    def pools(self, place: Ints, power: Ints, *, together: bool = False) -> list[tuple[Pools, Ints]]:
        """What the classes with a place in a batch find here, and those places."""
        found = []
        for mine, other, sign in ((self.rows, self.columns, 1.0), (self.columns, self.rows, -1.0)):
            here = np.flatnonzero((place[mine.classes] >= 0) & (mine.times != 0))
            if not len(here):
                continue
            scale, moves = -sign * other.scale(power), place[other.classes] >= 0
            lines, count = self._lines(sign > 0, np.where(moves, -np.inf, scale) if together else scale)
            local, times = place[mine.classes[here]], sign * mine.times[here]
            order = np.lexsort((times, local))
            here, local, times = here[order], local[order], times[order]
            own = sign * mine.scale(power)[here]
            starts = np.flatnonzero(np.append(True, (np.diff(local) != 0) | (np.diff(times) != 0)))
            with np.errstate(over="ignore"):
                total = np.add.reduceat(lines.square[here] * 4.0**own, starts)
                top = np.maximum.reduceat(lines.peak[here] * 2.0**own, starts)
            blocks = np.add.reduceat(count[here], starts)
            found.append((Pools(times[starts], np.zeros(len(starts), bool), total, blocks, top), local[starts]))
        return found

    def neighbours(self, among: NDArray[np.bool_]) -> Ints:
        """The classes that share a block with some of these."""
        sides = (self.rows.classes, self.columns.classes)
        return np.concatenate([sides[not i] for i in (0, 1) if among[sides[i]].any()] or [np.zeros(0, np.int64)])

    def _lines(self, of_rows: bool, scale: Floats) -> tuple[Lines, Floats]:
        """Sums over each row or column under these powers of what it crosses, 2^-inf for what is left out, kept until
        others are asked; and how many blocks they are over."""
        content = scale.tobytes()
        if self._last.get(of_rows, (b"", None))[0] != content:
            ask = self.large.rows if of_rows else self.large.columns
            self._last[of_rows] = content, ask(scale, self._unlike())
        mine, other = (self.rows, self.columns) if of_rows else (self.columns, self.rows)
        counted = other.classes[np.isfinite(scale)]
        alike = np.bincount(counted, minlength=int(mine.classes.max()) + 1)
        alike[PINNED] = 0
        return self._last[of_rows][1], len(counted) - alike[mine.classes].astype(np.float64)

    def _unlike(self) -> NDArray[np.bool_] | None:
        """The blocks whose row and column are of two classes; None where all are. As large as a quarter of the constant
        it is not kept."""
        both = np.intersect1d(self.rows.classes, self.columns.classes)
        if not len(both[both != PINNED]):
            return None
        rows = self.rows.classes[:, None]
        return np.asarray((rows != self.columns.classes) | (rows == PINNED))
