"""Weights of a large model, lent to one node at a time."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.emulation.weights import Room, RoundedWeights
from halfwise.precision.rewrite import Weight

__all__ = ["LentWeights"]


class LentWeights:
    """What was lent lasts until another node asks: the next one's are written over it. Samples that go through a model
    side by side are lent the same."""

    def __init__(self, weights: RoundedWeights) -> None:
        self._weights, self._room = weights, Room()
        self._node: ir.Node | None = None
        self._lent: dict[Any, NDArray[Any]] = {}

    def to(self, node: ir.Node, weight: Weight) -> NDArray[Any]:
        if node is not self._node:
            self._node, self._lent = node, {}
            self._room.clear(0)
        key = RoundedWeights.key(weight)
        if key not in self._lent:
            room = None if self._weights.keeps(weight) else self._room
            self._lent[key] = self._weights.of(weight, room=room)
        return self._lent[key]
