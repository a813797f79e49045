"""What a model declares of an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["InputSpec"]


@dataclass(frozen=True)
class InputSpec:
    """What the model declares of an input. In the shape a str is a symbol, None unknown; None as shape: no rank.

    Of a sequence, type and shape are those of each of its tensors; an optional input may be left out. Whole numbers
    that are made up reach to `most`: the last row of a table that the input chooses from, else 1. Nothing reads it
    while the input that `unread` names has that value. A cache whose last rows are kept has a `room` of so many at
    least, along its third axis.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None
    sequence: bool = False
    optional: bool = False
    most: int = 1
    unread: tuple[str, bool] | None = None
    room: int = 0

    @property
    def plain_name(self) -> str:
        """Without the number of an output, as TensorFlow has it: "input_ids:0"."""
        return self.name.partition(":")[0]
