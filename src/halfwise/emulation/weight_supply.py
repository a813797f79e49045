"""Hands the segments of a large model their weights, one segment after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import onnx_ir as ir

from halfwise.core.cores import beside
from halfwise.emulation.ort import Device
from halfwise.emulation.segments import Segment
from halfwise.emulation.weights import Room, RoundedWeights
from halfwise.model.passing import Passing
from halfwise.precision.rewrite import Weight

__all__ = ["WeightSupply"]


class WeightSupply:
    """For one walk. What was handed out lasts until the next is asked for.

    Where segments run on a GPU, the next one's weights are made while one runs; else they are read from the disk then.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        places: Sequence[Device],
        weights: Mapping[str, Weight],
        rounded: RoundedWeights,
    ) -> None:
        self._weights, self._rounded, self._places = weights, rounded, places
        self._room = rounded.room
        numbers = [number for number, each in enumerate(segments) if not self._few(each) and any(self._names(each))]
        self._segments = segments
        self._passing = Passing([] if self._few(each) else map(self._tensor, self._names(each)) for each in segments)
        self._next = dict(zip([-1, *numbers], numbers, strict=False))
        self._ahead: dict[int, Future[dict[str, Any]]] = {}

    def begin(self, number: int) -> None:
        """A segment is next."""
        self._passing.at(number)

    def of(self, number: int) -> dict[str, Any]:
        """A segment's weights, by name."""
        segment, follows = self._segments[number], self._next.get(number)
        if "cuda" not in self._places:
            needed = {name: self._weights[name] for name in self._names(segment)}
            self._room.clear(sum(weight.tensor.size for weight in needed.values() if weight.fmt is not None))
            return {name: self._rounded.of(weight, room=self._room) for name, weight in needed.items()}
        known = self._ahead.pop(number, None)
        found = self._brought(number) if known is None else known.result()
        if follows is not None:
            self._ahead[follows] = beside(lambda: self._brought(follows))
        return found

    def end(self) -> None:
        """After the last segment."""
        self._passing.end()
        self._room.leave()

    def _brought(self, number: int) -> dict[str, Any]:
        from halfwise.emulation.gpu_weights import on_gpu

        segment, room = self._segments[number], Room()
        found: dict[str, Any] = {}
        for name in self._names(segment):
            weight, there = self._weights[name], self._places[number] == "cuda" and name not in segment.foreign
            found[name] = on_gpu(weight, self._rounded, room) if there else self._rounded.of(weight, room=room)
        return found

    def _names(self, segment: Segment) -> Iterator[str]:
        return (name for name in segment.reads if name in self._weights)

    def _tensor(self, name: str) -> ir.TensorProtocol:
        return self._weights[name].tensor

    def _few(self, segment: Segment) -> bool:
        """Whether only a few entries of its weight are asked for, most likely."""
        return segment.picked is not None and segment.picked.table in self._weights
