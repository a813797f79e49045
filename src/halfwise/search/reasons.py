"""Says in words and numbers why a node stays out of FP16, from one more look at the FP32 model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.counting import Counts, count
from halfwise.core.formats import Format
from halfwise.emulation.stepper import Stepper, Store
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Sites
from halfwise.search.prune import Kept

__all__ = ["Look", "explain", "look_at"]

Array = NDArray[Any]


@dataclass
class Look:
    """Sizes of all tensors, and what the FP32 ones held."""

    sizes: dict[ir.Value, int] = field(default_factory=dict)
    tensors: dict[ir.Value, Counts] = field(default_factory=dict)

    def over(self, values: Iterable[ir.Value | None]) -> tuple[float, float]:
        """The largest finite magnitude and the smallest that is not zero; zeros where there is nothing."""
        found = [self.tensors[value] for value in values if value is not None and value in self.tensors]
        lows = [counts.min_abs for counts in found if counts.min_abs]
        return max((counts.max_abs for counts in found), default=0.0), min(lows, default=0.0)


def look_at(stepper: Stepper, sites: Sites, feed: Mapping[str, Array]) -> Look:
    """Walk one sample in FP32."""
    look = Look()
    store = Store(stepper.emulator, Assignment(sites, {}), feed)
    for value in sites.model.graph.inputs:
        if value in store:
            _see(look, value, store.read(value, None))
    for step in stepper.walk(store):
        for value, array in step.outputs.items():
            _see(look, value, array)
    return look


def _see(look: Look, value: ir.Value, array: Array) -> None:
    if not isinstance(array, np.ndarray):
        return
    look.sizes[value] = array.size
    if array.dtype == np.float32:
        look.tensors[value] = count(array)


def explain(kept: Kept, sites: Sites, look: Look, fmt: Format) -> PlannedNode:
    """One node of the plan."""
    node, narrow = kept.node, sites.fmt
    numbers: dict[str, float] = {}
    read_high, read_low = look.over(node.inputs)
    high, low = look.over(node.outputs)
    if high:
        numbers["max_abs"] = high
    if low:
        numbers["min_abs"] = low
    if read_high:
        numbers["input_max_abs"] = read_high
    if read_low:
        numbers["input_min_abs"] = read_low
    if kept.without is not None and np.isfinite(kept.without):
        numbers["error_without"] = kept.without
    return PlannedNode(node.name or "", node.op_type, fmt, kept.why, _sentence(kept, narrow, high, read_high), numbers)


def _sentence(kept: Kept, narrow: Format, high: float, read_high: float) -> str:
    name, limit = narrow.value.upper(), narrow.max
    if high > limit:
        cause = f"its result reaches {high:,.4g}, beyond {name}'s {limit:,.0f}, and becomes infinite"
    elif read_high > limit:
        cause = f"it reads values up to {read_high:,.4g}, beyond {name}'s {limit:,.0f}"
    elif kept.why == "overflow":
        cause = f"in {name} a value on its way is rounded to infinity or to zero where that is fatal"
    else:
        cause = f"rounding to {name} here is carried to the outputs"
    if kept.without is None:
        return f"{cause}; not put back alone (the budget of runs was spent on others)"
    if kept.without == np.inf:
        return f"{cause}; put back alone, the result is not finite or of another shape"
    if kept.without > 1:
        return f"{cause}; put back alone, the error is {kept.without:.3g} times the tolerance"
    return f"{cause}; put back alone, the error is {kept.without:.0%} of the tolerance: too near for unseen inputs"
