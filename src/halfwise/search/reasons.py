"""Says in words and numbers why a node stays out of FP16, from one more look at the FP32 model."""

from __future__ import annotations

import numpy as np

from halfwise.core.formats import Format
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Sites
from halfwise.search.prune import Kept
from halfwise.search.tensor_statistics import TensorStatistics

__all__ = ["explain"]


def explain(kept: Kept, sites: Sites, statistics: TensorStatistics, fmt: Format) -> PlannedNode:
    """One node of the plan."""
    node, narrow = kept.node, sites.fmt
    numbers: dict[str, float] = {}
    read_high, read_low = statistics.over(node.inputs)
    high, low = statistics.over(node.outputs)
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
