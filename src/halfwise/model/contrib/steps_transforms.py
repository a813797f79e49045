"""Fourier transforms as products with constant matrices of cosines and sines: DFT and STFT.

Real and imaginary parts lie beside each other, so a complex product is one matrix. A length p * q whose matrix would be
too large takes q transforms of length p, each turned by its place, and p of length q.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.contrib.writer import LARGEST, StepWriter, cut, dims_of, is_fp32, shaped, single, stored, whole

__all__ = ["TRANSFORMS"]

_AXIS_IS_INPUT = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Transform:
    """Of so many numbers, each with its weight, so many frequencies of a length; one part (real) or two of each."""

    length: int
    weights: Floats
    columns: int
    parts: int
    made: int  # parts of a result
    inverse: bool = False

    def matrix(self, numbers: NDArray[Any], columns: int, parts: int, made: int, weights: Floats | float) -> Floats:
        """(..., number and part, frequency and part) for numbers of shape (..., count)."""
        turns = numbers[..., None] * np.arange(columns) % self.length / self.length
        wave = np.exp((2j if self.inverse else -2j) * np.pi * turns) * np.expand_dims(weights, -1)
        apart = np.array([[wave.real, wave.imag], [-wave.imag, wave.real]])[:parts, :made]
        laid = np.round(np.moveaxis(apart, (0, 1), (-3, -1)), 15)  # zeros are zeros
        *outer, count = numbers.shape
        return np.asarray(laid.reshape(*outer, count * parts, columns * made))


def _dft(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    node, dims = write.node, dims_of(write.node, 0)
    if dims is None or len(dims) < 2 or not is_fp32(node) or not _are_stored(node, 1, 2):
        return None
    asked = single(node, 2) if write.opset >= _AXIS_IS_INPUT else whole(node, "axis", 1)
    rank, axis = len(dims), (-2 if asked is None else int(asked)) % len(dims)
    transform = None if axis == rank - 1 else _asked(node, dims[axis], dims[-1])
    if transform is None:
        return None
    swapped, turned = list(range(rank)), axis != rank - 2
    swapped[axis], swapped[-2] = swapped[-2], swapped[axis]
    value = write.op("Transpose", inputs[0], perm=swapped) if turned else inputs[0]
    if transform.weights.size != dims[axis]:
        value = cut(write, value, rank - 2, 0, transform.weights.size)
    result = _transformed(write, value, [dims[at] for at in swapped[:-2]], transform)
    if result is None:
        return None
    return {0: write.op("Transpose", result, perm=swapped) if turned else result}


def _asked(node: ir.Node, size: int | None, parts: int | None) -> _Transform | None:
    """Of an axis of this size; None where sizes are open, or runtimes differ in what they make of it."""
    one_sided, inverse, given = whole(node, "onesided"), whole(node, "inverse"), single(node, 1)
    to_real = bool(one_sided and inverse)
    if size is None or parts not in (1, 2) or (one_sided and parts != (2 if to_real else 1)):
        return None
    length = int(given) if given is not None else 2 * (size - 1) if to_real else size
    half = length // 2 + 1
    if length < 1 or (to_real and size != half):
        return None
    weights = np.full(min(size, length), 1 / length if inverse else 1.0)
    if to_real:  # a frequency stands for its mirror image, too
        weights[1 : (length + 1) // 2] *= 2
    columns = half if one_sided and not inverse else length
    return _Transform(length, weights, columns, parts, 1 if to_real else 2, bool(inverse))


def _transformed(write: StepWriter, value: str, leading: Sequence[int | None], of: _Transform) -> str | None:
    """Of (..., numbers, parts) the transform (..., frequencies, parts)."""
    count = of.weights.size
    if count * of.parts * of.columns * of.made > LARGEST:
        return _split(write, value, leading, of)
    kept = [0] * len(leading)
    matrix = write.constant(of.matrix(np.arange(count), of.columns, of.parts, of.made, of.weights))
    product = write.op("MatMul", shaped(write, value, *kept, count * of.parts), matrix)
    return shaped(write, product, *kept, of.columns, of.made)


def _split(write: StepWriter, value: str, leading: Sequence[int | None], of: _Transform) -> str | None:
    """Number second * j1 + j2 and frequency k1 + first * k2: first the sums over j1, then those over j2."""
    first = _first(of)
    if first is None or list(leading).count(None) > 1:
        return None
    second, count = of.length // first, of.weights.size
    if count < of.length:
        ends = [0] * (2 * len(leading) + 4)
        ends[-2] = of.length - count
        value = write.op("Pad", value, write.constant(ends, np.int64))
    numbers = np.arange(of.length).reshape(first, second).T
    weights = np.pad(of.weights, (0, of.length - count))[numbers]
    matrix = write.constant(of.matrix(numbers, first, of.parts, 2, weights))
    turned = write.op("Transpose", shaped(write, value, -1, first, second, of.parts), perm=[2, 0, 1, 3])
    sums = write.op("MatMul", shaped(write, turned, second, -1, first * of.parts), matrix)
    turned = write.op("Transpose", shaped(write, sums, second, -1, first, 2), perm=[1, 2, 0, 3])
    columns = -(-of.columns // first)
    matrix = write.constant(of.matrix(first * np.arange(second), columns, 2, of.made, 1.0))
    sums = write.op("MatMul", shaped(write, turned, -1, first, second * 2), matrix)
    turned = write.op("Transpose", shaped(write, sums, -1, first, columns, of.made), perm=[0, 2, 1, 3])
    kept = [-1 if dim is None else dim for dim in leading]
    result = shaped(write, turned, *kept, columns * first, of.made)
    return result if columns * first == of.columns else cut(write, result, len(leading), 0, of.columns)


def _first(of: _Transform) -> int | None:
    """The length of the first transforms with which the matrices are smallest; None where one is too large."""
    if of.length > LARGEST:
        return None

    def sizes(first: int) -> tuple[int, int]:
        return first * of.length * of.parts * 2, (of.length // first) ** 2 * 2 * of.made

    lengths = [first for first in range(2, of.length) if of.length % first == 0]
    best = min(lengths, key=lambda first: sum(sizes(first)), default=None)
    return best if best is not None and max(sizes(best)) <= LARGEST else None


def _stft(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """A convolution whose kernels are the waves under the window."""
    node, dims = write.node, dims_of(write.node, 0)
    if dims is None or len(dims) != 3 or not is_fp32(node) or not _are_stored(node, 1, 2, 3):
        return None
    parts, step, window, given = dims[2], single(node, 1), stored(node, 2), single(node, 3)
    length = int(given) if given is not None else window.size if window is not None else dims[1]
    one_sided = whole(node, "onesided", 1)
    if parts not in (1, 2) or length is None or length < 1 or step is None or step < 1 or (one_sided and parts != 1):
        return None
    weights = np.ones(length) if window is None else window.astype(np.float64)
    columns = length // 2 + 1 if one_sided else length
    if weights.shape != (length,) or length * parts * columns * 2 > LARGEST:
        return None
    of = _Transform(length, weights, columns, parts, 2)
    matrix = of.matrix(np.arange(length), columns, parts, 2, weights).reshape(length, parts, columns * 2)
    turned = write.op("Transpose", inputs[0], perm=[0, 2, 1])
    found = write.op("Conv", turned, write.constant(matrix.transpose(2, 1, 0)), strides=[int(step)])
    return {0: shaped(write, write.op("Transpose", found, perm=[0, 2, 1]), 0, 0, columns, 2)}


def _are_stored(node: ir.Node, *slots: int) -> bool:
    """Whether what these slots read, if anything, is stored."""
    return all(node.inputs[slot] is None or stored(node, slot) is not None for slot in slots if slot < len(node.inputs))


TRANSFORMS = {"DFT": _dft, "STFT": _stft}
