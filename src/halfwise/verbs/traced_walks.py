"""What `trace` sees in one walk: what each tensor of a sample holds, and what FP16 does to each node on its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
from msgspec import convert
from numpy.typing import NDArray

from halfwise.core.counting import Counts, count
from halfwise.core.errors import of_sample
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.bodies import graphs_in
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["SampleTrace", "Squares", "TracedWalks"]

Array = NDArray[Any]

_BLOCK = 1 << 16  # values of a tensor that are compared at a time


@dataclass(frozen=True)
class Squares:
    """Of one node on one sample, summed over its outputs."""

    difference: float = 0.0
    reference: float = 0.0


@dataclass(frozen=True, eq=False)
class SampleTrace:
    """Of one sample, in the order that it was first seen. A tensor in the body of a loop is seen several times."""

    tensors: dict[ir.Value, list[Counts]] = field(default_factory=dict)
    errors: dict[ir.Node, list[Squares]] = field(default_factory=dict)


class TracedWalks:
    """Walks through a model, one a sample; `notify` gets the nodes done and their total."""

    def __init__(
        self, model: Model, fmt: Format, kept: KeptWalks, samples: int, notify: Callable[[int, int], None]
    ) -> None:
        self._model, self._fmt, self._kept, self._notify = model, fmt, kept, notify
        self._sites = Sites(model, fmt)
        self._stepper = Stepper(Emulator(kept=kept))
        self._fp32 = Assignment(self._sites, {})
        self._narrow = Assignment.all_narrow(self._sites)
        self._total = samples * len(model.graph)

    def seen(self, index: int, feed: Mapping[str, Any]) -> SampleTrace:
        """Of the sample at that place. A walk that was kept is not walked again."""
        key = self._stepper.emulator.walk_key(self._fp32, feed, "trace", self._fmt.value)
        with of_sample(index):
            if not key:
                return self._walked(index, feed)
            return self._kept.document(key, lambda: self._told(self._walked(index, feed)), self._read)

    def _walked(self, index: int, feed: Mapping[str, Any]) -> SampleTrace:
        seen, before = SampleTrace(), index * len(self._model.graph)
        store = Store(self._stepper.emulator, self._fp32, feed)
        for value in self._model.graph.inputs:
            if value in store:
                self._see(seen, value, store.read(value, None))
        for done, step in enumerate(self._stepper.walk(store), before + 1):
            self._notify(done, self._total)
            for value, array in step.outputs.items():
                self._see(seen, value, array)
            for value, counts in self._stepper.observe(step.node, store, self._fmt).items():
                seen.tensors.setdefault(value, []).append(counts)
            if any(self._sites.of[n].free for n in (step.node, *self._stepper.inner(step.node))):
                rounded = self._stepper.run(step.node, self._narrow, store)
                seen.errors.setdefault(step.node, []).append(_squares(step.outputs, rounded))
        return seen

    def _see(self, seen: SampleTrace, value: ir.Value, array: Array) -> None:
        if isinstance(array, np.ndarray) and array.dtype == np.float32:
            seen.tensors.setdefault(value, []).append(count(array, self._fmt))

    def _values(self) -> Iterator[ir.Value]:
        for graph in (self._model.graph, *graphs_in(self._model.graph)):
            yield from graph.inputs
        for node in self._model.nodes:
            yield from node.outputs

    def _told(self, seen: SampleTrace) -> list[Any]:
        """For JSON: tensors by their numbers, which names may share; infinity is a word."""
        numbers = {value: number for number, value in enumerate(self._values())}
        return [
            [[numbers[value], list(map(asdict, counts))] for value, counts in seen.tensors.items()],
            [
                [node.name, [[str(each.difference), str(each.reference)] for each in squares]]
                for node, squares in seen.errors.items()
            ],
        ]

    def _read(self, told: Any) -> SampleTrace:
        values, (tensors, errors) = list(self._values()), told
        return SampleTrace(
            {values[number]: [convert(each, Counts) for each in counts] for number, counts in tensors},
            {
                self._model.node_by_name[name]: [Squares(float(one), float(other)) for one, other in squares]
                for name, squares in errors
            },
        )


def _squares(base: Mapping[ir.Value, Array], changed: Mapping[ir.Value, Array]) -> Squares:
    difference = reference = 0.0
    for value, array in base.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            continue
        other = changed[value]
        if other.shape != array.shape:
            difference = math.inf
            continue
        order: Literal["F", "C"] = "F" if array.flags.f_contiguous and other.flags.f_contiguous else "C"
        flat, others = array.ravel(order), other.ravel(order)
        for start in range(0, flat.size, _BLOCK):
            part, changed_part = flat[start : start + _BLOCK], others[start : start + _BLOCK]
            finite = np.isfinite(part)
            if (finite & ~np.isfinite(changed_part)).any():
                difference = math.inf
                continue
            a, b = part[finite].astype(np.float64), changed_part[finite].astype(np.float64)
            difference += float(((a - b) ** 2).sum())
            reference += float((a**2).sum())
    return Squares(difference, reference)
