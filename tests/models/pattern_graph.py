"""A writer of small graphs for the tests of patterns."""

from __future__ import annotations

import numpy as np

from halfwise.model.model import load
from halfwise.model.patterns import Pattern, find_patterns
from tests.models.numbered_graph import NumberedGraph

WIDTH = 8


class Graph(NumberedGraph):
    """A writer with constants that name themselves."""

    def reduce(self, op: str, x: str, axes: list[int], keepdims: int = 1) -> str:
        """Axes as attribute or as input, as the opset wants them."""
        if self.opset >= 18 or (op == "ReduceSum" and self.opset >= 13):
            return self.op(op, [x, self.number(axes, np.int64)], "", keepdims=keepdims)
        return self.op(op, [x], "", axes=axes, keepdims=keepdims)

    def found(self, *kinds: str) -> list[Pattern]:
        """The patterns of these kinds (of all, if none is named)."""
        patterns = find_patterns(load(self.model(self.opset)))
        return [pattern for pattern in patterns if not kinds or pattern.kind in kinds]

    def names(self) -> set[str]:
        return {node.name for node in self.graph().node}


def kinds(patterns: list[Pattern]) -> list[str]:
    return [pattern.kind for pattern in patterns]
