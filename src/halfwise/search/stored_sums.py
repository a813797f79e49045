"""Sums that a kernel stores on the way: one may leave FP16 although nothing that the node reads or gives does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Step, Stepper
from halfwise.emulation.store import Store
from halfwise.model.families import PRODUCTS, RECURRENT
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["kernels_apart", "lost_inside"]

Array = NDArray[Any]


def kernels_apart(emulators: Iterable[Emulator]) -> tuple[Stepper, ...]:
    """Steppers of the profiles whose kernels round on the way, and compute each node by itself."""
    return tuple(Stepper(each) for each in emulators if each.profile.kernels and not each.profile.fusion)


def lost_inside(steppers: Iterable[Stepper], sites: Sites, step: Step, store: Store) -> Iterator[ir.Value]:
    """The outputs of a node that a kernel makes infinite by itself, of values that are finite in FP32."""
    node = step.node
    if not sites.of[node].free or node.domain or node.op_type in PRODUCTS or node.op_type in RECURRENT:
        return
    for stepper in steppers:
        if node.op_type not in stepper.emulator.profile.kernels or not _may_leave(step, sites.fmt.max):
            continue
        changed = stepper.run(node, Assignment(sites, {node: sites.fmt}), store)
        for value, wide in step.outputs.items():
            if _is_float(wide) and (np.isfinite(wide) & ~np.isfinite(changed[value])).any():
                yield value


def _may_leave(step: Step, limit: float) -> bool:
    """Whether a sum of squares of what is read may leave the format, while what is read and given stays in it."""
    read = next((array for array in step.inputs if array is not None), None)
    if read is None or not _is_float(read) or not read.size:
        return False
    largest = max(float(read.max()), -float(read.min()))
    given = max(
        (float(np.abs(array).max()) for array in step.outputs.values() if _is_float(array) and array.size), default=0.0
    )
    return max(largest, given) <= limit < max(largest, 1.0) ** 2 * read.size


def _is_float(array: Array) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.float32
