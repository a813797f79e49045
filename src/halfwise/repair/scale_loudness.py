"""What the rounding of a constant costs where its columns are read at unlike loudness: small weights of a loud column
are lost beside large ones of a quiet column, though each row is large enough as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfwise.repair.scale_atoms import PINNED, Floats, Heard, Ints
from halfwise.repair.scale_lines import Side

__all__ = ["LoudColumns"]

_AUDIBLE = 2.0**-28  # square of what a row makes: below it is lost in FP16, however its weights are kept


@dataclass(frozen=True, eq=False)
class LoudColumns:
    """Row i makes sizes of `heard.made[i]`, squared; a rounding by 1 of a weight in column j adds `heard.read[j]`.
    Both grow with the powers of their sides. Rows of one class are judged as a whole. A row and a column of one class
    move together, and ask for nothing."""

    heard: Heard
    rows: Side
    columns: Side

    def asks(
        self, place: Ints, power: Ints, *, columns: bool, together: bool = False
    ) -> list[tuple[Ints, Floats, Floats]]:
        """For the classes with a place in a batch: the place, what the error shrinks with as the power grows, and the
        squared error of a rounding by 1 over the square of what it is added to."""
        made, number = self._made(power)
        read = self.heard.read * 4.0 ** self.columns.scale(power)
        weighed = np.divide(1.0, made, out=np.zeros(len(made)), where=made > 0)
        counted = np.where(made >= _AUDIBLE, weighed, 0.0) / max(1, np.count_nonzero(made >= _AUDIBLE))
        sides = [
            (self.rows, weighed / number, self.columns, read, 1.0),
            (self.columns, read, self.rows, counted, -1.0),
        ]
        found = []
        for mine, own, other, across, sign in sides[: 1 + columns]:
            here = place[mine.classes] >= 0
            if not here.any():
                continue
            still = np.where(place[other.classes] >= 0, 0.0, across) if together else across
            alike = np.bincount(other.classes, still, len(place))
            alike[PINNED] = 0.0
            error = own[here] * np.maximum(still.sum() - alike[mine.classes[here]], 0.0)
            found.append((place[mine.classes[here]], sign * mine.times[here], error))
        return found

    def _made(self, power: Ints) -> tuple[Floats, Ints]:
        """Of each row the mean over its class, and how many that has."""
        classes = self.rows.classes
        number = np.bincount(classes)
        whole = np.bincount(classes, self.heard.made * 4.0 ** self.rows.scale(power)) / np.maximum(number, 1)
        return whole[classes], number[classes]
