"""Text that a model writes: what changes in it, in characters or tokens, or in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from halfwise.core.measures.measure import Array, Measure, Outputs, named_output, only_output

__all__ = ["Text", "edits"]


@dataclass(frozen=True)
class Text(Measure):
    """Error: `rate`, edits over the length of the reference: in tokens, or in words where `space` is the token that
    parts them.

    `output` holds tokens, or scores of tokens in its last axis, of which the best is taken at every step. With `ctc`,
    repeats are one token and `blank` is none. What follows the token `end` is not compared.
    """

    name: ClassVar[str] = "text"
    output: str = ""
    ctc: bool = False
    blank: int = 0
    space: int = -1
    end: int = -1

    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        name = self.output or only_output(self, reference)
        pairs = zip(*(self.decoded(named_output(self, side, name)) for side in (reference, other)), strict=True)
        changed = length = 0
        for a, b in pairs:
            changed += edits(a, b)
            length += len(a)
        return {"rate": changed / max(length, 1)}

    def decoded(self, array: Array) -> list[list[object]]:
        """The tokens or words of every text of a batch."""
        tokens = array.argmax(-1) if array.dtype.kind == "f" else array
        return [self._text(row) for row in np.atleast_2d(tokens).reshape(-1, np.atleast_1d(tokens).shape[-1])]

    def _text(self, tokens: Array) -> list[object]:
        if self.ctc:
            kept = np.append(True, tokens[1:] != tokens[:-1]) if len(tokens) else np.zeros(0, bool)
            tokens = tokens[kept & (tokens != self.blank)]
        found: list[int] = tokens.tolist()
        if self.end in found and self.end >= 0:
            found = found[: found.index(self.end)]
        if self.space < 0:
            return list(found)
        words: list[list[int]] = [[]]
        for token in found:
            if token == self.space:
                words.append([])
            else:
                words[-1].append(token)
        return [tuple(word) for word in words if word]


def edits(a: Sequence[object], b: Sequence[object]) -> int:
    """The least insertions, deletions and replacements from one to the other."""
    numbers = {each: at for at, each in enumerate(dict.fromkeys((*a, *b)))}
    other = np.array([numbers[each] for each in b], dtype=np.int64)
    steps = np.arange(len(b) + 1)
    row = steps.copy()
    for i, each in enumerate(a):
        below = np.minimum(row[1:] + 1, row[:-1] + (other != numbers[each]))
        # An insertion adds 1 a step: the least so far, counted from the start of the row.
        row = np.minimum.accumulate(np.append(i + 1, below) - steps) + steps
    return int(row[-1])
