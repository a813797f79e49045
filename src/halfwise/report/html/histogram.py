"""Where the weights lie: how many of them have each power of two, and how many FP16 holds badly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import in_blocks
from halfwise.core.formats import FloatArray, Format
from halfwise.model.model import Model
from halfwise.model.weight_facts import fact_of_weight
from halfwise.model.weights import stored_tensor
from halfwise.verbs.scan.values_done import values_done
from halfwise.verbs.scan.weights import Elements

__all__ = ["WeightHistogram", "WeightLoss", "powers_of_two", "weigh"]

_EXPONENTS = 256  # of FP32: the biased field; 0 is zero or subnormal, 255 not finite
_BIAS = 127
_BLOCK = 1 << 22  # elements that one thread looks at at a time: of fewer, threads wait for each other's mappings
_FIRST_SUBNORMAL, _FIRST_NORMAL, _LAST_BELOW = -24 + _BIAS, -14 + _BIAS, 15 + _BIAS
_CACHED = 1 << 17  # pairs of elements that are worked on at once: of fewer, threads wait for each other
_FIELDS = np.uint64(0x7F800000_7F800000)  # the exponents of a pair
_TOGETHER, _SHIFT = np.uint64(1 + (1 << 24)), np.uint64(47)  # which stand beside one another 47 bits up, so multiplied

Fields = NDArray[np.int64]


@dataclass(frozen=True)
class WeightLoss:
    """One initializer with values that FP16 holds badly."""

    name: str
    count: int
    subnormal: int
    underflow: int
    overflow: int
    nonfinite: int

    @property
    def affected(self) -> int:
        return self.subnormal + self.underflow + self.overflow + self.nonfinite


@dataclass(frozen=True)
class WeightHistogram:
    """FP32 weights by power of two: `bins` maps e to how many w have 2^e <= |w| < 2^(e+1)."""

    bins: dict[int, int]
    zeros: int
    total: WeightLoss
    initializers: int
    worst: tuple[WeightLoss, ...]  # those with any loss, the most affected first
    each: Mapping[str, Mapping[int, int]]  # the bins of each initializer


def weigh(model: Model, notify: Callable[[int, int], None] = lambda done, total: None) -> WeightHistogram:
    """Read every FP32 initializer once, window by window. `notify` gets the values that are done, and their total."""
    fields = np.zeros(_EXPONENTS, dtype=np.int64)
    zeros, losses, over = 0, [], 0
    each: dict[str, dict[int, int]] = {}
    held = {value: value.const_value for value in model.initializers()}
    floats = {value: each for value, each in held.items() if each is not None and each.dtype == ir.DataType.FLOAT}
    done = values_done(sum(int(tensor.size) for tensor in floats.values()), notify)
    for value, tensor in floats.items():
        own, own_zeros, own_over = powers_of_two(tensor)
        done(int(tensor.size))
        fields += own
        each[value.name or ""] = _bins(own)
        zeros += own_zeros
        over += own_over
        loss = _loss(value.name or "", own, own_zeros, own_over)
        if loss.affected:
            losses.append(loss)
    losses.sort(key=lambda loss: -loss.affected)
    return WeightHistogram(_bins(fields), zeros, _loss("", fields, zeros, over), len(floats), tuple(losses), each)


def _bins(fields: Fields) -> dict[int, int]:
    return {int(e) - _BIAS: int(fields[e]) for e in np.flatnonzero(fields[: _EXPONENTS - 1])}


def powers_of_two(tensor: ir.TensorProtocol) -> tuple[Fields, int, int]:
    """The exponent fields, zeros left out; the zeros; and the finite values beyond FP16's largest."""
    stored = stored_tensor(tensor)
    fields, zeros, over = fact_of_weight(stored, "powers of two", lambda: _told(_counted(Elements(stored))))
    return np.array(fields, np.int64), zeros, over


def _told(seen: tuple[Fields, int, int]) -> list[Any]:
    """For JSON."""
    return [seen[0].tolist(), *seen[1:]]


def _counted(elements: Elements) -> tuple[Fields, int, int]:
    def look(start: int, stop: int) -> tuple[Fields, int, int]:
        window = np.ascontiguousarray(elements.read(start, stop))
        fields = _fields(window.view(np.uint32))
        zeros = int(window.size - np.count_nonzero(window)) if fields[0] else 0
        return fields, zeros, _beyond(window) if fields[_LAST_BELOW:].any() else 0

    fields = np.zeros(_EXPONENTS, dtype=np.int64)
    zeros = over = 0
    for seen in in_blocks(look, elements.size, _BLOCK):
        fields += seen[0]
        zeros += seen[1]
        over += seen[2]
    fields[0] -= zeros
    return fields, zeros, over


def _fields(bits: NDArray[np.uint32]) -> Fields:
    """How often each exponent stands in FP32 values. They are counted two at a time, for counting is what takes time:
    threads wait for each other there."""
    even = bits[: bits.size // 2 * 2].view(np.uint64)
    pairs = np.empty(even.size, np.uint64)
    for start in range(0, even.size, _CACHED):
        both, found = even[start : start + _CACHED], pairs[start : start + _CACHED]
        np.bitwise_and(both, _FIELDS, out=found)
        np.multiply(found, _TOGETHER, out=found)
        np.right_shift(found, _SHIFT, out=found)
    counted = np.bincount(pairs.view(np.int64), minlength=_EXPONENTS**2).reshape(_EXPONENTS, _EXPONENTS)
    fields: Fields = counted.sum(axis=0) + counted.sum(axis=1)
    for last in bits[even.size * 2 :]:
        fields[int(last) >> 23 & 0xFF] += 1
    return fields


def _beyond(window: FloatArray) -> int:
    magnitude = np.abs(window)
    return int(np.count_nonzero((magnitude > Format.FP16.max) & np.isfinite(magnitude)))


def _loss(name: str, fields: Fields, zeros: int, over: int) -> WeightLoss:
    return WeightLoss(
        name=name,
        count=int(fields.sum()) + zeros,
        subnormal=int(fields[_FIRST_SUBNORMAL:_FIRST_NORMAL].sum()),
        underflow=int(fields[:_FIRST_SUBNORMAL].sum()),
        overflow=over,
        nonfinite=int(fields[_EXPONENTS - 1]),
    )
