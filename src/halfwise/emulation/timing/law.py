"""How long a kernel takes: a roofline, corrected by what was measured of kernels like it.

Of a measured kernel the time is the measured one. Of another one it is the roofline's, times what measured kernels of
its family and format took over their own roofline, nearer ones counting more; near is what has like sizes, on a scale
of logarithms. Weights that leave the cache before they are read again make kernels slower: the time lies between both.
Without measurements the roofline of the GPU's data sheet stands alone, with usual efficiencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from halfwise.core.float_sum import float_sum
from halfwise.emulation.timing.gpus import Peak
from halfwise.emulation.timing.operation import Operation, Work, work_of
from halfwise.emulation.timing.record import Precision, TimeRecord

__all__ = ["Law", "Roof", "measured_law", "roofline"]

_WIDTH: Mapping[Precision, int] = {"fp16": 2, "fp32": 4, "tf32": 4}
_USUAL_LAUNCH_US = 2.0
_USUAL_SHARE = 0.6  # of a data sheet's peak
_NEAREST = 5
_LOST = 0.6  # of the cache: weights of so much all leave it before they are read again
_SOFTENS = 0.1  # squared distance at which a measured kernel counts half of one that is the same


@dataclass(frozen=True)
class Roof:
    """What no kernel exceeds: FLOP and bytes a microsecond; and what each takes at least."""

    launch_us: float
    flops: Mapping[Precision, float]
    bytes: float

    def microseconds(self, work: Work, precision: Precision, moved: float) -> float:
        return self.launch_us + max(work.flops / self.flops[precision], moved / self.bytes)


@dataclass(frozen=True, eq=False)
class Law:
    """Predicts times. `source` says from what: a machine, or a GPU's data sheet."""

    roof: Roof
    source: str
    measured: tuple[TimeRecord, ...] = ()
    cold: Law | None = None  # of weights outside the cache
    cache: int = 0  # bytes

    @property
    def is_measured(self) -> bool:
        return bool(self.measured)

    def missed(self, weights: float) -> float:
        """The share of a network's weights, given in bytes, that left the cache when they are read again."""
        return min(weights / (_LOST * self.cache), 1.0) if self.cache else 0.0

    def microseconds(self, operation: Operation, precision: Precision, missed: float = 0.0) -> float:
        """The time of one kernel whose floating-point tensors are in one format."""
        near = self._microseconds(operation, precision)
        if self.cold is None or not missed:
            return near
        return near + missed * (self.cold.microseconds(operation, precision) - near)

    def _microseconds(self, operation: Operation, precision: Precision) -> float:
        known = self._exact.get((operation.key, precision))
        if known is not None:
            return known
        work = work_of(operation)
        likes = self._likes(work, operation.op, precision)
        at = self.roof.microseconds(work, precision, _moved(operation, work, precision))
        if not likes:
            return at
        near = sorted((_apart(work.features, features), ratio) for features, ratio in likes)[:_NEAREST]
        weights = [1.0 / (_SOFTENS + distance) for distance, _ in near]
        told = float_sum(weight * ratio for weight, (_, ratio) in zip(weights, near, strict=True)) / float_sum(weights)
        return at * math.exp(told)

    def _likes(self, work: Work, op: str, precision: Precision) -> Sequence[tuple[tuple[float, ...], float]]:
        """Of the operator itself where it was measured; else of its family; TF32 as FP32 where it is not apart."""
        for kind in (precision, "fp32") if precision == "tf32" else (precision,):
            for name in (f"op {op}", f"family {work.family}"):
                if found := self._ratios.get((name, kind)):
                    return found
        return ()

    @cached_property
    def _exact(self) -> Mapping[tuple[str, str], float]:
        return {(each.operation.key, each.format): each.microseconds for each in self.measured}

    @cached_property
    def _ratios(self) -> Mapping[tuple[str, str], Sequence[tuple[tuple[float, ...], float]]]:
        """By operator and by family: features, and the logarithm of the measured over the roofline's time."""
        found: dict[tuple[str, str], list[tuple[tuple[float, ...], float]]] = {}
        for each in self.measured:
            work = work_of(each.operation)
            at = self.roof.microseconds(work, each.format, _moved(each.operation, work, each.format))
            row = (work.features, math.log(max(each.microseconds, 1e-3) / at))
            for name in (f"op {each.operation.op}", f"family {work.family}"):
                found.setdefault((name, each.format), []).append(row)
        return found


def roofline(gpu: Peak) -> Law:
    """From a data sheet: no kernel was measured."""
    per_us = 1e6 * _USUAL_SHARE
    flops: Mapping[Precision, float] = {"fp16": gpu.fp16 * per_us, "fp32": gpu.fp32 * per_us, "tf32": gpu.tf32 * per_us}
    return Law(Roof(_USUAL_LAUNCH_US, flops, gpu.bandwidth * 1e3 * _USUAL_SHARE), f"roofline of the {gpu.title}")


def measured_law(records: Sequence[TimeRecord], source: str, cache: int = 0) -> Law:
    """From measurements alone: the fastest of each kind are the roof."""
    launch = min(each.microseconds for each in records)
    flops: dict[Precision, float] = {"fp16": 1e-6, "fp32": 1e-6, "tf32": 1e-6}
    moved = 1e-6
    for each in records:
        work = work_of(each.operation)
        beyond = max(each.microseconds - launch, 0.1 * each.microseconds)
        flops[each.format] = max(flops[each.format], work.flops / beyond)
        moved = max(moved, _moved(each.operation, work, each.format) / beyond)
    flops["tf32"] = max(flops["tf32"], flops["fp32"])
    roof = Roof(launch, flops, moved)
    cold = tuple(replace(each, microseconds=each.cold_us or each.microseconds) for each in records)
    return Law(roof, source, tuple(records), Law(roof, source, cold) if cache else None, cache)


def _moved(operation: Operation, work: Work, precision: Precision) -> float:
    width = _WIDTH[precision]
    if operation.op == "Cast":
        return work.read * 6.0
    return float(width * (work.read + work.written))


def _apart(a: Sequence[float], b: Sequence[float]) -> float:
    return float_sum((x - y) ** 2 for x, y in zip(a, b, strict=False))
