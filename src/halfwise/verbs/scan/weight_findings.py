"""Findings about weights: what TensorRT will warn about, and which of it matters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.counting import Counts
from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.formats import Format, format_of_dtype
from halfwise.core.notes import Note, NoteKind
from halfwise.model.elements import Elements
from halfwise.model.patterns.view import View
from halfwise.precision.sites import Sites
from halfwise.verbs.scan.roles import Reading, Role, readings
from halfwise.verbs.scan.rounding import Rounding, may_be_quiet, rounding, too_quiet
from halfwise.verbs.scan.weights import InitializerCounts

__all__ = ["Usage", "channel_axis", "gathered", "harmed", "judge", "summary", "weight_findings"]

_FP16 = Format.FP16
_COARSE = 0.01  # a weight that changes by more is worth a finding
_LOST = 0.5
# A channel this much quieter than the others is beyond FP32's own resolution: dead before any rounding.
_DEAD = 2.0**-24
# So is one that gives less than half of FP16's least value even for inputs as large as the square of FP16's largest,
# or as the square of that, where each element is one product.
_REACH = {Role.MATRIX: 2.0**32, Role.FACTOR: 2.0**64}
_LISTED = 16
_DEAD_RULE = "HW107"
_SCALING = (Role.MATRIX, Role.FACTOR, Role.DIVISOR, Role.OTHER)


@dataclass(frozen=True)
class Usage:
    """What is known of how a weight is read: what its findings depend on."""

    scales: bool  # a factor, a matrix, a divisor: small values matter by their ratio, not by their size
    overflows: bool = True  # being clamped to 65504 changes an answer
    infinities: bool = True  # infinite values can only be broken ones
    divides: str | None = None  # the node that divides by it
    reach: float = _REACH[Role.FACTOR]  # the largest values that it may be multiplied with
    axis: int | None = None  # of its output channels


def weight_findings(
    view: View,
    sites: Sites,
    weights: Sequence[tuple[ir.Value, InitializerCounts]],
    explained: AbstractSet[ir.Value],
) -> tuple[list[Finding], dict[str, Rounding]]:
    """The findings HW101 to HW107 and the statistics behind them, by the weight's name.

    `explained` are masks and the like, whose overflow other findings speak of.
    """
    found: list[Finding] = []
    statistics: dict[str, Rounding] = {}
    converted: list[Counts] = []
    for value, entry in weights:
        if not entry.affected:
            continue
        uses = readings(view, sites, value)
        if not uses:
            continue
        converted.append(entry.counts)
        tensor = value.const_value
        assert tensor is not None
        shape = tuple(int(dim) for dim in tensor.shape.numpy())
        usage = _usage(uses, value in explained, channel_axis(uses, len(shape)))
        harm, change = judge(entry.name, entry.counts, Elements(tensor), shape, usage)
        found.extend(harm)
        if change is not None:
            statistics[entry.name] = change
    total = sum(1 for value, _ in weights if value.uses())
    return [*summary(converted, total, harmed(found)), *gathered(found)], statistics


def harmed(found: Sequence[Finding]) -> int:
    """How many weights the findings say that FP16 harms."""
    return len({each.where.name for each in found if each.rule != _DEAD_RULE})


def gathered(found: Sequence[Finding]) -> list[Finding]:
    """The findings with those of dead weights as one."""
    dead = [each for each in found if each.rule == _DEAD_RULE]
    others = [each for each in found if each.rule != _DEAD_RULE]
    if not dead:
        return others
    names = [each.where.name for each in dead]
    largest = max(float(each.numbers["max_abs"]) for each in dead)
    note = Note.of(NoteKind.WEIGHTS_DEAD, count=len(dead), names=names, largest=largest)
    numbers = {"count": len(dead), "max_abs": largest, "names": names}
    return [*others, finding(_DEAD_RULE, Where("model", "dead weights"), note, numbers)]


def channel_axis(uses: Sequence[Reading], rank: int) -> int | None:
    axis = next((use.channels for use in uses if use.channels is not None), None)
    return axis if axis is not None and 0 <= axis < rank else None


def _usage(uses: Sequence[Reading], explained: bool, axis: int | None) -> Usage:
    return Usage(
        scales=any(use.role in _SCALING for use in uses),
        overflows=not explained and any(use.role not in (Role.BOUND, Role.COMPARED) for use in uses),
        infinities=not explained and any(use.role in _SCALING for use in uses),
        reach=max(_REACH.get(use.role, math.inf) for use in uses),
        divides=next((use.node.name for use in uses if use.role is Role.DIVISOR), None),
        axis=axis,
    )


def summary(converted: Sequence[Counts], total: int, harmful: int) -> Iterator[Finding]:
    """What TensorRT's log will say, and how much of it matters."""
    subnormal = sum(1 for c in converted if c.subnormal)
    underflow = sum(1 for c in converted if c.underflow)
    overflow = sum(1 for c in converted if c.overflow)
    if not subnormal and not underflow and not overflow:
        return
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
    note = Note.of(
        NoteKind.TENSORRT_WILL_WARN, subnormal=subnormal, underflow=underflow, overflow=overflow, harmful=harmful
    )
    yield finding("HW101", Where("model", "weights"), note, numbers)


def judge(
    name: str, counts: Counts, elements: Elements, shape: tuple[int, ...], usage: Usage
) -> tuple[list[Finding], Rounding | None]:
    """What is wrong with one weight, and the statistics of its rounding where the counts raise the question."""
    where = Where("initializer", name)
    if counts.nonfinite:
        nan = sum(int(np.isnan(window).sum()) for window in elements.windows())
        if nan or usage.infinities:
            note = Note.of(NoteKind.WEIGHT_NOT_FINITE, nonfinite=counts.nonfinite, count=counts.count)
            if not nan and (fmt := format_of_dtype(elements.dtype)) is not None and fmt.narrow:
                bad, typed = counts.nonfinite, fmt.value.upper()
                note = Note.of(NoteKind.STORED_AS_INFINITY, nonfinite=bad, count=counts.count, typed=typed)
            numbers = {"count": counts.count, "nonfinite": counts.nonfinite, "nan": nan}
            return [finding("HW105", where, note, numbers)], None
        return [], None
    found = [_overflow(where, counts)] if counts.overflow and usage.overflows else []
    if not (counts.subnormal or counts.underflow) or not usage.scales:
        return found, None
    if counts.underflow and usage.divides is not None:
        zeros = sum(int(((w != 0) & (np.abs(w) <= _FP16.smallest_subnormal / 2)).sum()) for w in elements.windows())
        if zeros:
            note = Note.of(NoteKind.DIVISOR_VANISHES, usage.divides, least=counts.min_abs)
            return [*found, finding("HW106", where, note, {"min_abs": counts.min_abs, "zeros": zeros})], None
    axis = usage.axis
    stretches = axis is None or math.prod(shape[:axis]) == 1
    if counts.overflow or (stretches and not may_be_quiet(counts, 1 if axis is None else shape[axis])):
        return found, None
    if not too_quiet(elements, shape, axis):
        return found, None
    change = rounding(elements, shape, axis)
    return [*found, *_quiet(where, counts, change, axis, elements.size, usage.reach)], change


def _overflow(where: Where, counts: Counts) -> Finding:
    change = (counts.max_abs - _FP16.max) / counts.max_abs
    overflow, count, largest = counts.overflow, counts.count, counts.max_abs
    note = Note.of(NoteKind.WEIGHT_BEYOND, overflow=overflow, count=count, largest=largest, change=change)
    numbers = {"count": counts.count, "overflow": counts.overflow, "max_abs": counts.max_abs, "change": change}
    return finding("HW104", where, note, numbers, "error" if change > _COARSE else "warning")


def _quiet(
    where: Where, counts: Counts, change: Rounding, axis: int | None, size: int, reach: float
) -> Iterator[Finding]:
    # By Cauchy and Schwarz, no sum of a channel's magnitudes is larger.
    sums = np.sqrt(change.energy * (size / change.energy.size))
    dead = sums * reach < _FP16.smallest_subnormal / 2
    if dead.all():
        note = Note.of(NoteKind.WEIGHTS_DEAD, count=1, names=[where.name], largest=counts.max_abs)
        yield finding(_DEAD_RULE, where, note, {"max_abs": counts.max_abs})
        return
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
        note = Note.of(NoteKind.WEIGHT_TINY, largest=counts.max_abs, change=change.relative, weak=change.relative_weak)
        yield finding("HW102", where, note, numbers)
        return
    if axis is None:
        return
    yield from _quiet_channels(where, change, axis, size, dead, numbers)


def _quiet_channels(
    where: Where, change: Rounding, axis: int, size: int, dead: NDArray[np.bool_], numbers: dict[str, Any]
) -> Iterator[Finding]:
    """Channels that FP16 changes much, among those loud enough to count."""
    by_channel = change.relative_by_channel
    loudness = np.sqrt(change.energy)
    alive = loudness > _DEAD * float(np.median(loudness[~dead]))
    coarse = np.flatnonzero(alive & (by_channel > _COARSE))
    if not coarse.size:
        return
    lost = int((by_channel[coarse] > _LOST).sum())
    loudest = float(np.sqrt(change.energy[coarse].max() / (size / change.energy.size)))
    largest, indices = float(by_channel[coarse].max()), [int(channel) for channel in coarse[:_LISTED]]
    note = Note.of(
        NoteKind.CHANNELS_TINY,
        coarse=int(coarse.size),
        channels=int(by_channel.size),
        indices=indices,
        loudest=loudest,
        change=largest,
        lost=lost,
    )
    numbers = numbers | {
        "axis": axis,
        "channels": int(by_channel.size),
        "channels_coarse": int(coarse.size),
        "channels_lost": lost,
        "channels_dead": int(((loudness > 0) & ~alive).sum()),
        "channel_indices": indices,
        "largest_channel_change": largest,
    }
    yield finding("HW103", where, note, numbers)
