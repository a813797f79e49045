"""Findings about weights: what TensorRT will warn about, and which of it matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import onnx_ir as ir

from halfwise.finding import Finding, Where
from halfwise.formats import Counts, Format
from halfwise.patterns.view import View
from halfwise.rules import finding
from halfwise.scan.roles import Reading, Role, readings
from halfwise.scan.rounding import Rounding, rounding, too_quiet
from halfwise.scan.weights import Elements, InitializerCounts
from halfwise.scan.words import counted, number, percent
from halfwise.sites import Sites

__all__ = ["weight_findings"]

_FP16 = Format.FP16
_COARSE = 0.01  # a weight that changes by more is worth a finding
_LOST = 0.5
# A channel this much quieter than the others is beyond FP32's own resolution: dead before any rounding.
_DEAD = 2.0**-24
_LISTED = 16
_SCALING = (Role.MATRIX, Role.FACTOR, Role.DIVISOR, Role.OTHER)


def weight_findings(
    view: View,
    sites: Sites,
    weights: Sequence[tuple[ir.Value, InitializerCounts]],
    explained: AbstractSet[ir.Value],
) -> list[Finding]:
    """The findings HW101 to HW106. `explained` are masks and the like, whose overflow other findings speak of."""
    found: list[Finding] = []
    converted: list[Counts] = []
    for value, entry in weights:
        if not entry.affected:
            continue
        uses = readings(view, sites, value)
        if not uses:
            continue
        converted.append(entry.counts)
        found.extend(_of_weight(value, entry, uses, value in explained))
    total = sum(1 for value, _ in weights if value.uses())
    return [*_summary(converted, total, len({f.where.name for f in found})), *found]


def _summary(converted: Sequence[Counts], total: int, harmful: int) -> Iterator[Finding]:
    """What TensorRT's log will say, and how much of it matters."""
    subnormal = sum(1 for c in converted if c.subnormal)
    underflow = sum(1 for c in converted if c.underflow)
    overflow = sum(1 for c in converted if c.overflow)
    if not subnormal and not underflow and not overflow:
        return
    parts = [f"{counted(subnormal, 'weight')} with subnormal FP16 values"] if subnormal else []
    parts += [f"{counted(underflow, 'weight')} with values below the smallest one"] if underflow else []
    parts += [f"{counted(overflow, 'weight')} with values over 65504"] if overflow else []
    matters = "no weight is worse for it"
    if harmful:
        matters = f"{harmful} of them {'is' if harmful == 1 else 'are'} worse for it"
    numbers = {
        "tensors": total,
        "tensors_subnormal": subnormal,
        "tensors_underflow": underflow,
        "tensors_overflow": overflow,
        "values_subnormal": sum(c.subnormal for c in converted),
        "values_underflow": sum(c.underflow for c in converted),
        "values_overflow": sum(c.overflow for c in converted),
        "tensors_harmful": harmful,
    }
    message = (
        f"TensorRT will warn about {', '.join(parts)} (it counts tensors, not values, after fusing some); {matters}"
    )
    yield finding("HW101", Where("model", "weights"), message, numbers)


def _of_weight(
    value: ir.Value, entry: InitializerCounts, uses: Sequence[Reading], explained: bool
) -> Iterator[Finding]:
    counts = entry.counts
    tensor = value.const_value
    assert tensor is not None
    where = Where("initializer", entry.name)
    elements = Elements(tensor)
    if counts.nonfinite:
        nan = sum(int(np.isnan(window).sum()) for window in elements.windows())
        if nan or (not explained and any(use.role in _SCALING for use in uses)):
            message = f"{counts.nonfinite:,} of its {counted(counts.count, 'value')} NaN or infinite"
            yield finding("HW105", where, message, {"count": counts.count, "nonfinite": counts.nonfinite, "nan": nan})
        return
    if counts.overflow and not explained and any(u.role not in (Role.BOUND, Role.COMPARED) for u in uses):
        yield _overflow(where, counts)
    tiny = counts.subnormal + counts.underflow
    scaling = next((use for use in uses if use.role in _SCALING), None)
    if not tiny or scaling is None:
        return
    if counts.underflow and any(use.role is Role.DIVISOR for use in uses):
        zeros = sum(int(((w != 0) & (np.abs(w) <= _FP16.smallest_subnormal / 2)).sum()) for w in elements.windows())
        if zeros:
            node = next(use.node.name for use in uses if use.role is Role.DIVISOR)
            message = f"{node} divides by {number(counts.min_abs)}, which is 0 in FP16 (6e-08 under weak typing)"
            yield finding("HW106", where, message, {"min_abs": counts.min_abs, "zeros": zeros})
            return
    shape = tuple(int(dim) for dim in tensor.shape.numpy())
    axis = next((use.channels for use in uses if use.channels is not None), None)
    if axis is not None and not 0 <= axis < len(shape):
        axis = None
    if not counts.overflow and too_quiet(elements, shape, axis):
        yield from _quiet(where, counts, rounding(elements, shape, axis), axis, elements.size)


def _overflow(where: Where, counts: Counts) -> Finding:
    change = (counts.max_abs - _FP16.max) / counts.max_abs
    message = (
        f"{counts.overflow:,} of its {counted(counts.count, 'value')} over 65504, up to {number(counts.max_abs)}: "
        f"clamped to 65504, {percent(change)} less"
    )
    numbers = {"count": counts.count, "overflow": counts.overflow, "max_abs": counts.max_abs, "change": change}
    return finding("HW104", where, message, numbers, "error" if change > _COARSE else "warning")


def _quiet(where: Where, counts: Counts, change: Rounding, axis: int | None, size: int) -> Iterator[Finding]:
    numbers: dict[str, Any] = {
        "count": counts.count,
        "subnormal": counts.subnormal,
        "underflow": counts.underflow,
        "max_abs": counts.max_abs,
        "share_of_energy": change.affected_share,
        "relative_change": change.relative,
        "relative_change_weak": change.relative_weak,
    }
    if change.relative > _COARSE:
        message = (
            f"its largest value is {number(counts.max_abs)}: rounding to FP16 changes the weight by "
            f"{percent(change.relative)} ({percent(change.relative_weak)} under weak typing, "
            "which raises tiny values to 6e-08)"
        )
        yield finding("HW102", where, message, numbers)
        return
    if axis is None:
        return
    by_channel = change.relative_by_channel
    loudness = np.sqrt(change.energy)
    alive = loudness > _DEAD * float(np.median(loudness[loudness > 0]))
    coarse = np.flatnonzero(alive & (by_channel > _COARSE))
    if not coarse.size:
        return
    lost = int((by_channel[coarse] > _LOST).sum())
    loudest = float(np.sqrt(change.energy[coarse].max() / (size / change.energy.size)))
    listed = ", ".join(str(channel) for channel in coarse[:4]) + (", ..." if coarse.size > 4 else "")
    message = (
        f"{coarse.size} of its {by_channel.size} output channels ({listed}) hold values of about {number(loudest)}: "
        f"rounding to FP16 changes them by up to {percent(float(by_channel[coarse].max()))}"
        + (f", {counted(lost, 'channel')} by more than half" if lost else "")
    )
    numbers |= {
        "axis": axis,
        "channels": int(by_channel.size),
        "channels_coarse": int(coarse.size),
        "channels_lost": lost,
        "channels_dead": int(((loudness > 0) & ~alive).sum()),
        "channel_indices": [int(channel) for channel in coarse[:_LISTED]],
        "largest_channel_change": float(by_channel[coarse].max()),
    }
    yield finding("HW103", where, message, numbers)
