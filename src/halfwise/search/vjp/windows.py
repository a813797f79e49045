"""Rules for operators that slide a window: convolutions and pools, in any number of dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfwise.search.vjp.local import Array, Local, NoRule, Rule
from halfwise.search.vjp.runtime import run

__all__ = ["WINDOWS"]


@dataclass(frozen=True)
class _Window:
    """Where each element of a kernel meets the padded input: position = place * stride + offset * dilation."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]  # padding
    narrow: tuple[int, ...]  # spatial sizes on the strided side
    wide: tuple[int, ...]  # and on the other, without padding

    @property
    def padded(self) -> tuple[int, ...]:
        return tuple(
            max((n - 1) * s + (k - 1) * d + 1, b + w)
            for n, s, k, d, b, w in zip(
                self.narrow, self.strides, self.kernel, self.dilations, self.before, self.wide, strict=True
            )
        )

    def offsets(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Where each element of the kernel is in the weight, and what it meets in the padded input."""
        for offset in np.ndindex(*self.kernel):
            starts = [o * d for o, d in zip(offset, self.dilations, strict=True)]
            places = [
                slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(starts, self.narrow, self.strides, strict=True)
            ]
            yield (..., *offset), (..., *places)

    @property
    def inner(self) -> tuple[Any, ...]:
        return (..., *(slice(b, b + w) for b, w in zip(self.before, self.wide, strict=True)))

    def pad(self, array: Array, fill: float = 0.0) -> Array:
        lead = array.shape[: array.ndim - len(self.wide)]
        out = np.full((*lead, *self.padded), fill, dtype=np.float32)
        out[self.inner] = array
        return out


def _window(local: Local, kernel: tuple[int, ...], wide: tuple[int, ...], narrow: tuple[int, ...]) -> _Window:
    rank = len(kernel)
    strides = local.integers("strides") or (1,) * rank
    dilations = local.integers("dilations") or (1,) * rank
    pads = local.integers("pads") or (0,) * (2 * rank)
    before = pads[:rank]
    auto = local.text("auto_pad", "NOTSET")
    given = local.integers("output_shape") is not None
    if auto.startswith("SAME") or given:
        more = local.integers("output_padding") or (0,) * rank
        total = [
            max((n - 1) * s + (k - 1) * d + 1 + o - w, 0)
            for n, s, k, d, w, o in zip(narrow, strides, kernel, dilations, wide, more, strict=True)
        ]
        first_larger = auto == "SAME_LOWER" or (given and auto != "SAME_UPPER")
        before = tuple((t + 1) // 2 if first_larger else t // 2 for t in total)
    elif auto == "VALID":
        before = (0,) * rank
    return _Window(kernel, strides, dilations, before, narrow, wide)


def _conv(local: Local, slot: int) -> Array:
    x, weight, gradient = local.input(0), local.input(1), local.gradient()
    if slot == 2:
        return np.asarray(gradient.sum(axis=(1, *range(3, gradient.ndim))))
    window = _window(local, weight.shape[2:], x.shape[2:], gradient.shape[3:])
    groups = local.integer("group", 1)
    if slot == 0:
        return _spread(gradient, weight, window, groups)
    return _correlate(gradient, x, window, groups).reshape(len(gradient), *weight.shape)


def _conv_transpose(local: Local, slot: int) -> Array:
    x, weight, gradient = local.input(0), local.input(1), local.gradient()
    if slot == 2:
        return np.asarray(gradient.sum(axis=(1, *range(3, gradient.ndim))))
    window = _window(local, weight.shape[2:], gradient.shape[3:], x.shape[2:])
    groups, probes, batch = local.integer("group", 1), len(gradient), x.shape[0]
    per_in, per_out = weight.shape[0] // groups, weight.shape[1]
    padded = window.pad(gradient)
    places = int(np.prod(window.narrow))
    kernel = weight.reshape(groups, per_in, per_out, *window.kernel)
    if slot == 0:
        found = np.zeros((probes * batch, groups, per_in, places), dtype=np.float32)
        for offset, where in window.offsets():
            part = padded[where].reshape(probes * batch, groups, per_out, places)
            found += np.matmul(kernel[offset], part)
        return found.reshape(probes, *x.shape)
    grad = np.empty((probes, groups, per_in, per_out, *window.kernel), dtype=np.float32)
    source = x.reshape(batch, groups, per_in, places)
    for offset, where in window.offsets():
        part = padded[where].reshape(probes, batch, groups, per_out, places)
        grad[offset] = np.matmul(source, np.swapaxes(part, -1, -2)).sum(axis=1)
    return grad.reshape(probes, *weight.shape)


def _turned_pads(window: _Window) -> tuple[int, ...]:
    """Of the output, so that a convolution of it with the kernel that lies the other way makes the input's size."""
    sides = zip(window.kernel, window.dilations, window.before, window.wide, window.narrow, strict=True)
    pads = [((k - 1) * d - before, wide - n + before) for k, d, before, wide, n in sides]
    return (*(before for before, _ in pads), *(after for _, after in pads))


def _convolved(gradient: Array, weight: Array, window: _Window, pads: tuple[int, ...]) -> Array:
    probes, batch = gradient.shape[:2]
    turned = np.flip(np.swapaxes(weight, 0, 1), axis=tuple(range(2, weight.ndim)))
    flat = gradient.reshape(probes * batch, *gradient.shape[2:])
    found = run("Conv", flat, turned, dilations=window.dilations, pads=pads)
    return found.reshape(probes, batch, *found.shape[1:])


def _spread(gradient: Array, weight: Array, window: _Window, groups: int) -> Array:
    """The adjoint of a convolution by its input is a transposed convolution with the same weight.

    For one the runtime makes columns of all places, larger than the tensor by the kernel; where no place is skipped, a
    convolution with the kernel turned does the same without.
    """
    pads = _turned_pads(window)
    if groups == 1 and max(window.strides) == 1 and min(pads) >= 0:
        return _convolved(gradient, weight, window, pads)
    ends, more = [], []
    for padded, before, wide, n, s, k, d in zip(
        window.padded, window.before, window.wide, window.narrow, window.strides, window.kernel, window.dilations,
        strict=True,
    ):  # fmt: skip
        reached = (n - 1) * s + (k - 1) * d + 1
        ends.append(max(reached - before - wide, 0))
        more.append(padded - reached)
    probes, batch = gradient.shape[:2]
    found = run(
        "ConvTranspose",
        gradient.reshape(probes * batch, *gradient.shape[2:]),
        weight,
        group=groups,
        strides=window.strides,
        dilations=window.dilations,
        pads=(*window.before, *ends),
        output_padding=tuple(more),
    )
    return found.reshape(probes, batch, *found.shape[1:])


def _correlate(gradient: Array, x: Array, window: _Window, groups: int) -> Array:
    """The adjoint of a convolution by its weight."""
    probes, batch = gradient.shape[:2]
    per_out, per_in = gradient.shape[2] // groups, x.shape[1] // groups
    places = int(np.prod(window.narrow))
    flat = np.ascontiguousarray(gradient).reshape(probes, batch, groups, per_out, places)
    padded = window.pad(x)
    found = np.empty((probes, groups, per_out, per_in, *window.kernel), dtype=np.float32)
    for offset, where in window.offsets():
        part = padded[where].reshape(batch, groups, per_in, places)
        found[offset] = np.matmul(flat, np.swapaxes(part, -1, -2)).sum(axis=1)
    return found


def _max_pool(local: Local, slot: int) -> Array:
    x, y, gradient = local.input(0), local.output(0), local.gradient()
    window = _pool_window(local, x, y)
    source = window.pad(x, -np.inf)
    padded = np.zeros((len(gradient), *source.shape), dtype=np.float32)
    open_places = np.ones(y.shape, dtype=bool)
    for _, where in window.offsets():
        hit = open_places & (source[where] == y)
        open_places &= ~hit
        padded[where] += gradient * hit
    return np.asarray(padded[window.inner])


def _average_pool(local: Local, slot: int) -> Array:
    x, y, gradient = local.input(0), local.output(0), local.gradient()
    window = _pool_window(local, x, y)
    counted = np.zeros(window.padded, dtype=np.float32)
    counted[window.inner] = 1
    if local.integer("count_include_pad", 0):  # padding counts, what ceil_mode adds beyond it does not
        pads = local.integers("pads") or (0,) * (2 * len(window.wide))
        ends = pads[len(window.wide) :] if local.text("auto_pad", "NOTSET") == "NOTSET" else window.padded
        reached = tuple(slice(0, b + w + e) for b, w, e in zip(window.before, window.wide, ends, strict=True))
        counted[reached] = 1
    count = np.zeros(window.narrow, dtype=np.float32)
    for _, where in window.offsets():
        count += counted[where]
    padded = np.zeros((*gradient.shape[:3], *window.padded), dtype=np.float32)
    share = gradient / np.maximum(count, 1)
    for _, where in window.offsets():
        padded[where] += share
    return np.asarray(padded[window.inner])


def _pool_window(local: Local, x: Array, y: Array) -> _Window:
    kernel = local.integers("kernel_shape")
    if kernel is None or (local.text("auto_pad", "NOTSET").startswith("SAME") and local.integer("ceil_mode", 0)):
        raise NoRule
    return _window(local, kernel, x.shape[2:], y.shape[2:])


WINDOWS: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
}
