"""An infinity on its way through the FP32 model: whether it vanishes again, as a mask does in a softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.emulation.stepper import Step, Stepper
from halfwise.emulation.store import Store
from halfwise.precision.assignment import Assignment

__all__ = ["DEPTH", "Overflow", "alike", "overflowed"]

Array = NDArray[Any]

DEPTH = 8  # nodes behind an overflow in which it may vanish again
_BLOCK = 1 << 14  # elements at a time: in the processor's cache
ABSORBED = 1e-3  # relative difference at which it counts as vanished


@dataclass
class Overflow:
    """The tensors that differ because of an overflow and are still alive."""

    variant: dict[ir.Value, Array]
    depth: int = 0
    within: float = ABSORBED

    def follow(self, stepper: Stepper, step: Step, fp32: Assignment, store: Store) -> bool:
        """Through one more node; True where it has come too far to vanish."""
        self.depth += 1
        try:
            outputs = stepper.run(step.node, fp32, store, self.variant)
        except InputError:  # an index that became infinite leaves its table
            return True
        for value, changed in outputs.items():
            if not alike(changed, step.outputs[value], self.within):
                self.variant[value] = changed
                if value.is_graph_output():
                    self.depth = DEPTH
        store.drop_beside(self.variant)
        return self.depth >= DEPTH and bool(self.variant)


def overflowed(array: Array, narrow: Array) -> Array | None:
    """A tensor with what rounding makes infinite of its finite values; None where there is nothing of the kind."""
    lost = np.isfinite(array) & ~np.isfinite(narrow)
    return np.where(lost, narrow, array) if lost.any() else None


def alike(changed: Array, base: Array, within: float = ABSORBED) -> bool:
    if not isinstance(base, np.ndarray) or changed.shape != base.shape:
        return False
    if base.dtype.kind != "f":
        return bool(np.array_equal(changed, base))
    one, other, moved, size = base.reshape(-1), changed.reshape(-1), 0.0, 0.0
    for start in range(0, one.size, _BLOCK):
        wide, different = one[start : start + _BLOCK], other[start : start + _BLOCK]
        finite = np.isfinite(wide)
        if not np.array_equal(np.isfinite(different), finite):
            return False
        if not finite.all():
            wide, different = wide[finite], different[finite]
        wide = wide.astype(np.float64)
        difference = different - wide
        moved, size = moved + float(difference @ difference), size + float(wide @ wide)
    return moved <= within**2 * max(size, 1e-30)
