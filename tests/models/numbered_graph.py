"""A writer of graphs whose constants name themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.zoo.graph_writer import GraphWriter

__all__ = ["NumberedGraph"]


class NumberedGraph(GraphWriter):
    def __init__(self, opset: int = 17) -> None:
        super().__init__("test")
        self.opset = opset
        self.count = 0

    def number(self, value: Any, dtype: Any = np.float32) -> str:
        self.count += 1
        return self.weight(f"constant_{self.count}", value, dtype)
