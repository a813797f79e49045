"""A constant times powers of two, where that is exact: a large one is made when it is read, and is one for all trials.

So what is kept by a weight, as its rounding is, serves every repaired model that scales it alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import in_blocks
from halfwise.model.magnitudes import magnitudes
from halfwise.model.weight_facts import fact_of_weight
from halfwise.model.weights import DerivedTensor, Making, Part, stored_tensor
from halfwise.repair.scale_blocks import is_large

__all__ = ["Scaled", "ScaledTensor", "spread_over", "times_powers"]

Array = NDArray[Any]
Ints = NDArray[np.int64]

_NORMAL = 127  # powers of two below it, and their inverses, are normal numbers of FP32
_BLOCK = 1 << 18  # elements that are looked at together
_SMALLEST = float(np.finfo(np.float32).tiny)
_LARGEST = float(np.finfo(np.float32).max)
_BESIDE = 2.0**48  # how far above a value that becomes 0 another one of its tensor has to be


@dataclass(frozen=True, eq=False)
class Scaled:
    tensor: ir.TensorProtocol
    emptied: bool  # values that would have left FP32's normal numbers are 0


class ScaledTensor(DerivedTensor):
    """A large weight of FP32 times 2^powers; what is below FP32's normal numbers then is 0."""

    def __init__(self, source: ir.TensorProtocol, powers: Sequence[Ints], *, empties: bool) -> None:
        factors, shape = cache(lambda: _factors(powers)), tuple(source.shape.numpy())

        def begin() -> Making:
            before = source.begin() if isinstance(source, DerivedTensor) else None
            stored = None if before else np.asarray(stored_tensor(source).numpy())

            def make(part: Part, into: Array) -> None:
                if before is not None:
                    before(part, into)
                given = into if stored is None else stored[part].astype(np.float32, copy=False)
                factor = reduce(np.multiply, (np.broadcast_to(each, shape)[part] for each in factors()))
                np.multiply(given, factor, out=into, casting="same_kind")
                if empties:
                    into[np.abs(into) < _SMALLEST] = 0

            return make

        recipe = b"".join(f"2^{each.shape} ".encode() + each.tobytes() for each in powers)
        super().__init__(source, recipe, begin, tuple if empties else factors)


def _factors(powers: Sequence[Ints]) -> list[Array]:
    """2^powers, of FP32 where all their products are normal numbers of it."""
    most = sum(int(np.abs(each).max(initial=0)) for each in powers)
    dtype = np.float32 if most < _NORMAL else np.float64
    return [np.exp2(each.astype(dtype)) for each in powers]


_Key = tuple[tuple[tuple[int, ...], bytes], ...]
_LOOKED_AT: WeakKeyDictionary[ir.TensorProtocol, dict[_Key, list[bool]]] = WeakKeyDictionary()
_MADE: WeakKeyDictionary[ir.TensorProtocol, WeakValueDictionary[_Key, ScaledTensor]] = WeakKeyDictionary()


def times_powers(tensor: ir.TensorProtocol, powers: Sequence[Ints], *, empties: bool = False) -> Scaled | None:
    """The tensor times 2^powers, None where that is not exact or leaves FP32's normal numbers.

    `empties` lets values become 0 that are below those numbers then, and far below another one of the tensor.
    """
    array = np.asarray(tensor.numpy())
    if not is_large(array) or array.dtype != np.float32 or not _fits(array, powers):
        return _scale(array, powers, empties=empties)
    key = tuple((each.shape, each.tobytes()) for each in powers)
    looked, made = _LOOKED_AT.setdefault(tensor, {}), _MADE.setdefault(tensor, WeakValueDictionary())
    if key not in looked and _stays_normal(tensor, powers):
        looked[key] = [True, False, True]
    if key not in looked:
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        looked[key] = fact_of_weight(tensor, f"what times 2^{digest} does to it", lambda: _look(array, powers))
    fits, emptied, beside = looked[key]
    if not fits or (emptied and not (empties and beside)):
        return None
    found = made.get(key) or ScaledTensor(tensor, powers, empties=emptied)
    made[key] = found
    return Scaled(found, emptied)


def spread_over(edit: Mapping[str, Any]) -> Ints:
    powers: Ints = np.asarray(edit["powers"], np.int64).reshape(edit["shape"])
    return powers


def _fits(array: Array, powers: Sequence[Ints]) -> bool:
    try:
        return np.broadcast_shapes(array.shape, *(each.shape for each in powers)) == array.shape
    except ValueError:
        return False


def _stays_normal(tensor: ir.TensorProtocol, powers: Sequence[Ints]) -> bool:
    """Whether no value can leave FP32's normal numbers, by the magnitudes, which are read once for all powers."""
    least, largest = magnitudes(tensor)
    low, high = (sum(int(of(each)) for each in powers) for of in (np.min, np.max))
    return bool(np.ldexp(largest, high) <= _LARGEST and np.ldexp(least, low) >= _SMALLEST)


def _look(array: Array, powers: Sequence[Ints]) -> list[bool]:
    """Whether it stays below FP32's largest number, whether any value becomes 0, and whether one is far above those."""
    over = [np.broadcast_to(np.exp2(each.astype(np.float64)), array.shape) for each in powers]

    def part(start: int, stop: int) -> tuple[float, bool]:
        piece = array[start:stop]
        sizes = np.abs(reduce(np.multiply, (each[start:stop] for each in over), piece))
        return float(sizes.max(initial=0.0)), bool(((sizes < _SMALLEST) & (piece != 0)).any())

    seen = in_blocks(part, len(array), max(1, _BLOCK * len(array) // array.size))
    largest = max(each for each, _ in seen)
    return [largest <= _LARGEST, any(lost for _, lost in seen), largest >= _BESIDE * _SMALLEST]


def _scale(array: Array, powers: Sequence[Ints], *, empties: bool) -> Scaled | None:
    try:
        whole, spread = np.broadcast_arrays(array, sum(powers))
    except ValueError:
        return None
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(array, spread)
        back = np.ldexp(scaled, -spread)
    sizes = np.abs(scaled)
    if scaled.dtype != array.dtype or not np.isfinite(sizes).all():
        return None
    lost = (sizes < _SMALLEST) & (whole != 0)
    beside = empties and scaled.dtype.itemsize >= 4 and sizes.max(initial=0.0) >= _BESIDE * _SMALLEST
    if (lost.any() and not beside) or not np.array_equal(back[~lost], whole[~lost]):
        return None
    return Scaled(ir.tensor(np.where(lost, np.zeros_like(scaled), scaled)), bool(lost.any()))
