"""Operators whose results jump where a computed number crosses another: choices, thresholds, steps."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.model.model import Model

__all__ = ["jumping"]

_JUMPS = frozenset(
    "ArgMax ArgMin TopK NonMaxSuppression NonZero Unique Hardmax Floor Ceil Round Sign Mod Greater GreaterOrEqual Less "
    "LessOrEqual Equal".split()
)


def jumping(model: Model) -> Iterator[ir.Node]:
    """Where a comparison of computed numbers may decide between outputs that lie far apart."""
    for node in model.nodes:
        floats = (v for v in node.inputs if v is not None and v.dtype and v.dtype.is_floating_point())
        if node.op_type in _JUMPS and not node.domain and any(True for _ in floats):
            yield node
