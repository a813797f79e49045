"""The live tensors of a run, node by node, and what nodes take of them and of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.fast_casts import rounded
from halfwise.core.formats import Format
from halfwise.core.freed_memory import Freed
from halfwise.emulation.arena import shrink
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.lent_weights import LentWeights
from halfwise.emulation.ort import Device
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Weight

__all__ = ["Store", "is_large"]

Array = NDArray[Any]

WEIGHT_BYTES = 1 << 22  # in FP32, of a weight with which a product runs on the GPU

_freed = Freed(shrink)  # by all runs of this process


class Store:
    """The live tensors of one run, in the format they are kept in.

    `beside` are those of samples that go through the model in turns, node by node, this one among them; `ahead` holds
    products that another one made for this one, too.
    """

    def __init__(
        self,
        emulator: Emulator,
        assignment: Assignment,
        feeds: Mapping[str, Array],
        beside: list[Store] | None = None,
    ) -> None:
        self._emulator = emulator
        self.assignment = assignment
        self.beside: Sequence[Store] = ()
        if beside is not None:
            self.beside = beside
            beside.append(self)
        self.ahead: dict[ir.Node, Array] = {}
        self._values: dict[ir.Value, Array] = {}
        for value in assignment.sites.model.graph.inputs:
            if value.name and value.name in feeds:
                array, fmt = feeds[value.name], assignment.stored(value)
                self._values[value] = array if fmt is None else rounded(array, fmt)

    def read(self, value: ir.Value, fmt: Format | None) -> Array:
        """A tensor or a weight as a node takes it."""
        if value.is_initializer():
            assert value.const_value is not None
            if fmt is None:
                return np.asarray(value.const_value.numpy())
            return self._emulator.weights.of(Weight(value.name or "", value.const_value, fmt))
        return self.as_read(value, self._values[value], fmt)

    def taken(
        self, value: ir.Value, fmt: Format | None, node: ir.Node, device: Device, lent: LentWeights | None
    ) -> Any:
        """The same as a node's session on a device takes it."""
        if fmt is None or not value.is_initializer():
            return self.read(value, fmt)
        assert value.const_value is not None
        weight = Weight(value.name or "", value.const_value, fmt)
        if device == "cuda" and is_large(value):
            from halfwise.emulation.gpu_weights import on_gpu

            return on_gpu(weight, self._emulator.weights)
        return self.read(value, fmt) if lent is None else lent.to(node, weight)

    def as_read(self, value: ir.Value, part: Array, fmt: Format | None) -> Array:
        """The same of a part of a tensor."""
        return part if fmt is None or fmt is self.assignment.stored(value) else rounded(part, fmt)

    def picked(self, value: ir.Value, fmt: Format | None, indices: Array) -> Array:
        """Entries of a weight along its first axis."""
        assert value.const_value is not None
        return self._emulator.weights.picked(Weight(value.name or "", value.const_value, fmt), indices)

    def put(self, value: ir.Value, array: Array) -> None:
        self._values[value] = array

    def drop(self, value: ir.Value) -> None:
        _let_go(self._values, value)

    def drop_beside(self, changed: dict[ir.Value, Any]) -> None:
        """Of tensors that differ from those of this run: what is no longer live here."""
        for value in [each for each in changed if each not in self._values]:
            _let_go(changed, value)

    def __contains__(self, value: ir.Value) -> bool:
        return value in self._values

    @property
    def nbytes(self) -> int:
        """Of the live tensors; weights are no tensors."""
        return sum(array.nbytes for array in self._values.values() if isinstance(array, np.ndarray))


def _let_go(tensors: dict[ir.Value, Any], value: ir.Value) -> None:
    array = tensors.pop(value, None)
    if isinstance(array, np.ndarray):
        size = array.nbytes
        del array
        _freed.count(size)


def is_large(value: ir.Value | None) -> bool:
    """Whether it is a weight that is worth a GPU's work."""
    tensor = value.const_value if value is not None and value.is_initializer() else None
    return tensor is not None and 4 * tensor.size >= WEIGHT_BYTES
