"""What the rounding of a constant costs where its columns are read at unlike loudness: small weights of a loud column
are lost beside large ones of a quiet column, though each row is large enough as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfwise.repair.distinct import numbered
from halfwise.repair.scale_atoms import PINNED, Floats, Heard, Ints
from halfwise.repair.scale_lines import Side

__all__ = ["LoudColumns"]

_AUDIBLE = 2.0**-28  # square of what a row makes: below it is lost in FP16, however its weights are kept


@dataclass(frozen=True, eq=False)
class LoudColumns:
    """Row i makes sizes of `heard.made[i]`, squared; a rounding by 1 of a weight in column j adds `heard.read[j]`.
    Both grow with the powers of their sides. Rows of one class are judged as a whole. A row and a column of one class
    move together, and ask for nothing. The sides count the `classes` that there are."""

    heard: Heard
    rows: Side
    columns: Side
    classes: Ints
    members: Ints  # rows of each class

    @classmethod
    def of(cls, heard: Heard, rows: Side, columns: Side) -> LoudColumns:
        classes, number = numbered(np.concatenate([rows.classes, columns.classes]))
        of_rows, of_columns = np.split(number, [len(rows.classes)])
        members = np.bincount(of_rows, minlength=len(classes))
        return cls(heard, Side(of_rows, rows.times), Side(of_columns, columns.times), classes, members)

    def asks(
        self, place: Ints, power: Ints, above: float, *, columns: bool, together: bool = False
    ) -> list[tuple[Ints, Floats, Floats]]:
        """For the classes with a place in a batch: the place, what the error shrinks with as the power grows, and the
        squared error of a rounding by 1 over the square of what it is added to, where a class has more than `above`."""
        place, power = place[self.classes], power[self.classes]
        made = self._made(power)
        read = self.heard.read * 4.0 ** self.columns.scale(power)
        weighed = np.divide(1.0, made, out=np.zeros(len(made)), where=made > 0)
        if weighed.max(initial=0.0) * read.sum() <= above:
            return []
        counted = np.where(made >= _AUDIBLE, weighed, 0.0) / max(1, np.count_nonzero(made >= _AUDIBLE))
        sides = [
            (self.rows, weighed / self.members[self.rows.classes], self.columns, read, 1.0),
            (self.columns, read, self.rows, counted, -1.0),
        ]
        found = []
        for mine, own, other, across, sign in sides[: 1 + columns]:
            still = np.where(place[other.classes] >= 0, 0.0, across) if together else across
            alike = np.bincount(other.classes, still, len(place))
            alike[self.classes == PINNED] = 0.0
            error = own * np.maximum(still.sum() - alike[mine.classes], 0.0)
            much = (place >= 0) & (np.bincount(mine.classes, error, len(place)) > above)
            here = much[mine.classes]
            found.append((place[mine.classes[here]], sign * mine.times[here], error[here]))
        return found

    def _made(self, power: Ints) -> Floats:
        """Of each row the mean over its class."""
        classes = self.rows.classes
        whole = np.bincount(classes, self.heard.made * 4.0 ** self.rows.scale(power))
        found: Floats = whole[classes] / self.members[classes]
        return found
