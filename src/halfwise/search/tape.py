"""Keeps the tensors of a walk for the way back, within a bound: what it drops is computed a second time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.set_aside import is_aside, set_aside
from halfwise.emulation.stepper import Step, Stepper
from halfwise.emulation.store import Store
from halfwise.precision.assignment import Assignment
from halfwise.search.large_weights import wants_gradient

__all__ = ["Tape"]

Array = NDArray[Any]

SEGMENT_BYTES = 1 << 27
MOST_SEGMENT_BYTES = 1 << 28


class Tape:
    """The walk is cut into segments of at most `SEGMENT_BYTES` of tensors, of a large model more. Of all but the last,
    only what later ones read is kept; on the way back each is run once more. So a model of any size costs at most one
    more forward run, and holds one segment; what is large of the tensors that live across its ends is in files.
    """

    def __init__(self, stepper: Stepper, assignment: Assignment, feeds: Mapping[str, Array]) -> None:
        self.store = Store(stepper.emulator, assignment, feeds)
        self._stepper = stepper
        self._assignment = assignment
        self._segments: list[list[ir.Node]] = [[]]
        self._bytes = 0
        self._most = max(SEGMENT_BYTES, min(assignment.sites.model.emulated_bytes, MOST_SEGMENT_BYTES))
        self.widest = 0  # bytes of a tensor that has a gradient

    def record(self, step: Step, live: Store) -> None:
        """Take in a node that has just run; `live` holds what later nodes read."""
        arrays = {value: array for value, array in step.outputs.items() if isinstance(array, np.ndarray)}
        size = sum(array.nbytes for array in arrays.values() if not is_aside(array))
        followed = [array.nbytes for value, array in arrays.items() if wants_gradient(value, array)]
        self.widest = max(self.widest, *followed, 0)
        if self._segments[-1] and self._bytes + size > self._most:
            for node in self._segments[-1]:
                for value in node.outputs:
                    if value not in live:
                        self.store.drop(value)
                    elif value in self.store:
                        self.store.put(value, set_aside({"": self.store.read(value, None)})[""])
            self._segments.append([])
            self._bytes = 0
        self._segments[-1].append(step.node)
        self._bytes += size
        for value, array in step.outputs.items():
            self.store.put(value, array)

    def rewind(self, again: bool = False) -> Iterator[ir.Node]:
        """The nodes, last first, each with all that it took and gave in the store. `again`: it will be rewound once
        more, so what was kept so far stays."""
        told, count = self._stepper.emulator.walked, sum(map(len, self._segments))
        numbers = iter(range(count))
        kept = {v for segment in self._segments for n in segment for v in n.outputs if again and v in self.store}
        for segment in reversed(self._segments):
            for node in segment:
                if any(value.name and value not in self.store for value in node.outputs):
                    for value, array in self._stepper.run(node, self._assignment, self.store).items():
                        self.store.put(value, array)
            for node in reversed(segment):
                told(next(numbers), count)
                yield node
                for value in node.outputs:
                    if value not in kept:
                        self.store.drop(value)
