"""A constant times powers of two, where that is exact: a large one is made when it is read, and is one for all trials.

So what is kept by a weight, as its rounding is, serves every repaired model that scales it alike.
"""

from __future__ import annotations

import hashlib
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.cores import in_blocks
from halfwise.model.weight_facts import fact_of_weight
from halfwise.model.weights import DerivedTensor
from halfwise.repair.scale_blocks import is_large

__all__ = ["ScaledTensor", "spread_over", "times_powers"]

Array = NDArray[Any]
Ints = NDArray[np.int64]

_NORMAL = 127  # powers of two below it, and their inverses, are normal numbers of FP32
_BLOCK = 1 << 18  # elements that are looked at together
_SMALLEST = float(np.finfo(np.float32).tiny)
_LARGEST = float(np.finfo(np.float32).max)


class ScaledTensor(DerivedTensor):
    """A large weight of FP32 times 2^powers."""

    def __init__(self, source: ir.TensorProtocol, powers: Ints) -> None:
        def made() -> ir.TensorProtocol:
            array = np.asarray(source.numpy())
            held = np.empty(array.shape, np.float32)
            times, factors = _product(powers)
            over = np.broadcast_to(factors, array.shape)

            def part(start: int, stop: int) -> None:
                times(array[start:stop], over[start:stop], out=held[start:stop])

            in_blocks(part, len(array), max(1, _BLOCK * len(array) // array.size))
            return ir.tensor(held)

        super().__init__(source, f"2^{powers.shape} ".encode() + powers.tobytes(), made)


def _product(powers: Ints) -> tuple[np.ufunc, Array]:
    """What multiplies by 2^powers, and by what: products are as exact, and take a tenth of the time."""
    if np.abs(powers).max(initial=0) < _NORMAL:
        return np.multiply, np.exp2(powers.astype(np.float32))
    return np.ldexp, powers


_Key = tuple[tuple[int, ...], bytes]
_EXACT: WeakKeyDictionary[ir.TensorProtocol, dict[_Key, bool]] = WeakKeyDictionary()
_MADE: WeakKeyDictionary[ir.TensorProtocol, WeakValueDictionary[_Key, ScaledTensor]] = WeakKeyDictionary()


def times_powers(tensor: ir.TensorProtocol, powers: Ints) -> ir.TensorProtocol | None:
    """The tensor times 2^powers, None where that is not exact or leaves FP32's normal numbers."""
    array = np.asarray(tensor.numpy())
    if not is_large(array) or array.dtype != np.float32 or not _fits(array, powers):
        small = _scale(array, powers)
        return None if small is None else ir.tensor(small)
    key = (powers.shape, powers.tobytes())
    exact, made = _EXACT.setdefault(tensor, {}), _MADE.setdefault(tensor, WeakValueDictionary())
    if key not in exact:
        question = f"whether times 2^{hashlib.sha256(key[1]).hexdigest()} of {key[0]} is exact"
        exact[key] = fact_of_weight(tensor, question, lambda: _is_exact(array, powers))
    if not exact[key]:
        return None
    found = made.get(key) or ScaledTensor(tensor, powers)
    made[key] = found
    return found


def spread_over(edit: dict[str, Any]) -> Ints:
    powers: Ints = np.asarray(edit["powers"], np.int64).reshape(edit["shape"])
    return powers


def _fits(array: Array, powers: Ints) -> bool:
    try:
        return np.broadcast_shapes(array.shape, powers.shape) == array.shape
    except ValueError:
        return False


def _is_exact(array: Array, powers: Ints) -> bool:
    over = np.broadcast_to(np.exp2(powers.astype(np.float64)), array.shape)

    def part(start: int, stop: int) -> bool:
        piece = array[start:stop]
        sizes = np.abs(piece * over[start:stop])
        return bool(((sizes <= _LARGEST) & ((sizes >= _SMALLEST) | (piece == 0))).all())

    return all(in_blocks(part, len(array), max(1, _BLOCK * len(array) // array.size)))


def _scale(array: Array, powers: Ints) -> Array | None:
    try:
        spread = np.broadcast_arrays(array, powers)[1]
    except ValueError:
        return None
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(array, spread)
        back = np.ldexp(scaled, -spread)
    sizes = np.abs(scaled[scaled != 0])
    exact = scaled.dtype == array.dtype and np.array_equal(back, np.broadcast_to(array, back.shape))
    return scaled if exact and np.isfinite(sizes).all() and (sizes >= _SMALLEST).all() else None
