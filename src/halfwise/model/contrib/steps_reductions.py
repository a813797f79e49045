"""Reductions in steps that stay finite: the logarithm of a sum of exponentials, with the largest taken out first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from halfwise.model.contrib.writer import StepWriter, is_fp32, stored, whole

__all__ = ["REDUCTIONS"]

_LOWEST = float(np.finfo(np.float32).min)
_SUM_TAKES_AXES, _MAX_TAKES_AXES = 13, 18  # as an input


def _log_sum_exp(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """log(sum(exp(x))) = m + log(sum(exp(x - m))), with m = max(x); where all are minus infinity, so is the result."""
    node, x = write.node, inputs[0]
    axes = _axes(write, inputs)
    if axes is None or not is_fp32(node):
        return None
    largest = write.op("Max", _reduced(write, "ReduceMax", x, axes, _MAX_TAKES_AXES), write.constant(_LOWEST))
    powers = write.op("Exp", write.store(write.op("Sub", x, largest)))
    total = _reduced(write, "ReduceSum", write.store(powers), axes, _SUM_TAKES_AXES)
    found = write.op("Add", write.store(write.op("Log", write.store(total))), largest)
    if whole(node, "keepdims", 1):
        return {0: found}
    if write.opset < _SUM_TAKES_AXES:
        return {0: write.op("Squeeze", found, axes=axes) if axes else write.op("Squeeze", found)}
    given = [write.constant(axes, np.int64)] if axes else []
    return {0: write.op("Squeeze", write.store(found), *given)}


def _axes(write: StepWriter, inputs: Sequence[str]) -> list[int] | None:
    """Those that are reduced; none for all of them, None where they are not known or where none is."""
    node = write.node
    if write.opset < _MAX_TAKES_AXES:
        return list(node.attributes["axes"].as_ints()) if "axes" in node.attributes else []
    if len(inputs) > 1 and inputs[1]:
        held = stored(node, 1)
        if held is None:
            return None
        axes = [int(axis) for axis in held.reshape(-1)]
    else:
        axes = []
    return None if not axes and whole(node, "noop_with_empty_axes") else axes


def _reduced(write: StepWriter, op: str, value: str, axes: Sequence[int], since: int) -> str:
    if not axes:
        return write.op(op, value, keepdims=1)
    if write.opset < since:
        return write.op(op, value, axes=list(axes), keepdims=1)
    return write.op(op, value, write.constant(list(axes), np.int64), keepdims=1)


REDUCTIONS = {"ReduceLogSumExp": _log_sum_exp}
