"""A writer of small graphs for the tests of patterns."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.zoo.graph_writer import GraphWriter
from halfwise.model import load
from halfwise.patterns import Pattern, find_patterns

WIDTH = 8


class Graph(GraphWriter):
    """A writer with constants that name themselves."""

    def __init__(self, opset: int = 17) -> None:
        super().__init__("test")
        self.opset = opset
        self.count = 0

    def number(self, value: Any, dtype: Any = np.float32) -> str:
        self.count += 1
        return self.weight(f"constant_{self.count}", value, dtype)

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
