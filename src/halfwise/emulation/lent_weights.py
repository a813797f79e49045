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
        self._lent: dict[ir.Node, dict[Any, NDArray[Any]]] = {}  # of one node

    def to(self, node: ir.Node, weight: Weight) -> NDArray[Any]:
        if node not in self._lent:
            self._lent.clear()
            self._room.clear(0)
        lent, key = self._lent.setdefault(node, {}), RoundedWeights.key(weight)
        if key not in lent:
            room = None if self._weights.keeps(weight) else self._room
            lent[key] = self._weights.of(weight, room=room)
        return lent[key]
