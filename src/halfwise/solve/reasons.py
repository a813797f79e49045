"""Says in words and numbers why a node stays out of FP16, from one more look at the FP32 model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.engine.stepper import Stepper, Store
from halfwise.formats import Format
from halfwise.plan import PlannedNode
from halfwise.precision import Assignment
from halfwise.sites import Sites
from halfwise.solve.search import Kept

__all__ = ["Look", "explain", "look_at"]

Array = NDArray[Any]


@dataclass
class Look:
    """Sizes of all tensors, and the largest and smallest magnitude that each node reads and writes."""

    sizes: dict[ir.Value, int] = field(default_factory=dict)
    reads: dict[ir.Node, tuple[float, float]] = field(default_factory=dict)
    writes: dict[ir.Node, tuple[float, float]] = field(default_factory=dict)


def look_at(stepper: Stepper, sites: Sites, feed: Mapping[str, Array]) -> Look:
    """Walk one sample in FP32."""
    look = Look()
    store = Store(stepper.emulator, Assignment(sites, {}), feed)
    for value in sites.model.graph.inputs:
        if value in store:
            look.sizes[value] = store.read(value, None).size
    for step in stepper.walk(store):
        look.sizes.update((v, a.size) for v, a in step.outputs.items() if isinstance(a, np.ndarray))
        look.reads[step.node] = _magnitudes([a for a in step.inputs if a is not None])
        look.writes[step.node] = _magnitudes(list(step.outputs.values()))
    return look


def _magnitudes(arrays: list[Array]) -> tuple[float, float]:
    """The largest finite magnitude and the smallest that is not zero; zeros where there is none."""
    high, low = 0.0, np.inf
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.dtype != np.float32 or not array.size:
            continue
        magnitude = np.abs(array)
        high = max(high, float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0)))
        low = min(low, float(np.min(magnitude, where=magnitude > 0, initial=np.inf)))
    return high, low if np.isfinite(low) else 0.0


def explain(kept: Kept, sites: Sites, look: Look, fmt: Format) -> PlannedNode:
    """One node of the plan."""
    node, narrow = kept.node, sites.fmt
    numbers: dict[str, float] = {}
    read_high, read_low = look.reads.get(node, (0.0, 0.0))
    high, low = look.writes.get(node, (0.0, 0.0))
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
