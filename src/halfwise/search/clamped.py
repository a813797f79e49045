"""What FP16 holds of constants beyond it: they are stored clamped, and stay finite wherever they are only moved to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.emulation.stepper import Step, Stepper
from halfwise.emulation.store import Store
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["Clamped"]

Array = NDArray[Any]


class Clamped:
    """Tensors with moved constants, clamped there and as in FP32 elsewhere. Nodes of `kept` store theirs in FP32."""

    def __init__(self, stepper: Stepper, sites: Sites, kept: Collection[ir.Node]) -> None:
        self.kept = kept
        self.sites = sites
        self.stepper = stepper
        self.tensors: dict[ir.Value, Array] = {}

    def take(self, step: Step, store: Store, fp32: Assignment) -> None:
        """Of a node that has just run."""
        node, site = step.node, self.sites.of[step.node]
        if not site.moves or not site.free or node in self.kept:
            return
        if node.op_type == "ConstantOfShape":
            made = {value: self._clamp(array) for value, array in step.outputs.items()}
        else:
            read = {value: self._read(value, store) for slot, value in enumerate(node.inputs) if site.inputs[slot]}
            changed = {value: array for value, array in read.items() if value is not None and array is not None}
            made = dict(self.stepper.run(node, fp32, store, changed)) if changed else {}
        self.tensors.update({value: array for value, array in made.items() if array is not None})

    def _read(self, value: ir.Value | None, store: Store) -> Array | None:
        """What a node moves, where a part of it is clamped."""
        if value is None or not value.is_initializer():
            return self.tensors.get(value) if value is not None else None
        fits = self.stepper.largest(value) <= self.sites.fmt.max
        return None if fits else self._clamp(store.read(value, None))

    def _clamp(self, array: Array) -> Array | None:
        largest = self.sites.fmt.max
        beyond = np.isfinite(array) & (np.abs(array) > largest)
        return np.where(beyond, np.copysign(np.float32(largest), array), array) if beyond.any() else None
