"""Matrix products and convolutions in NumPy, with sums stored on the way as a hypothesis says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from halfwise.emulation.probes import Form
from tests.support.simulated_rounding import Array, given, h, terms_of

__all__ = ["convolution", "convolved", "gemm", "matmul", "narrow_matmul", "parts", "spread_out", "takes_bias"]


def parts(length: int, terms: int) -> list[slice]:
    first = length % terms or terms
    edges = [0, *range(first, length + 1, terms)]
    return [slice(a, b) for a, b in pairwise(edges)]


def narrow_matmul(x: Array, w: Array, terms: int) -> Array:
    total = np.zeros(())
    for part in parts(x.shape[-1], min(terms, x.shape[-1])):
        total = h(total + x[..., part] @ w[..., part, :])
    return total


def matmul(form: Form, hypothesis: str) -> Array:
    x, w = given(form)
    return h(x @ w) if hypothesis == "wide" else narrow_matmul(x, w, terms_of(hypothesis))


def gemm(form: Form, hypothesis: str) -> Array:
    x, w, *rest = given(form)
    w = w.T if form.attributes.get("transB") else w
    alpha, beta = (float(form.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    if hypothesis in ("factors-stored", "bias-by-size"):
        alpha, beta = float(h(alpha)), float(h(beta))
    bias = beta * rest[0] if rest else 0.0
    if hypothesis.startswith("fp16-sums"):
        return h(alpha * narrow_matmul(x, w, terms_of(hypothesis)) + bias)
    product = alpha * (x @ w)
    behind = hypothesis == "bias-after"
    if hypothesis == "bias-by-size":
        behind = (alpha, beta) == (1.0, 1.0) and not takes_bias(x.shape[0], x.shape[1], w.shape[1])
    return h(h(product) + bias) if behind else h(product + bias)


def takes_bias(rows: int, length: int, columns: int) -> bool:
    """Sizes that tensor cores do not read whole, and long sums of which there are too few to fill the GPU."""
    whole = length % 8 == 0 and columns % 8 == 0
    return not whole or (length > 1500 and ((rows + 127) // 128) * ((columns + 127) // 128) < 16)


def convolved(x: Array, w: Array, attributes: Mapping[str, Any]) -> Array:
    rank, group = w.ndim - 2, attributes.get("group", 1)
    pads, strides = attributes.get("pads", [0] * 2 * rank), attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    x = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[i + rank]) for i in range(rank))])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + rank)))
    every = tuple(slice(None, None, s) for s in strides) + tuple(slice(None, None, d) for d in dilations)
    windows = windows[(slice(None), slice(None)) + every]  # noqa: RUF005
    places = windows.shape[2 : 2 + rank]
    columns = windows.reshape(x.shape[0], group, x.shape[1] // group, *places, -1)
    columns = np.moveaxis(columns, 2, -2).reshape(x.shape[0], group, math.prod(places), -1)
    rows = w.reshape(group, w.shape[0] // group, -1)
    made = np.einsum("ngpk,gok->ngop", columns, rows, optimize=True)
    return np.asarray(made.reshape(x.shape[0], w.shape[0], *places))


def spread_out(x: Array, w: Array, attributes: Mapping[str, Any]) -> Array:
    """A transposed convolution of two dimensions."""
    group, strides = attributes.get("group", 1), attributes["strides"]
    pads = attributes.get("pads", [0] * 4)
    count, ins, *size = x.shape
    kernel = w.shape[2:]
    full = [(n - 1) * s + k for n, s, k in zip(size, strides, kernel, strict=True)]
    made = np.zeros((count, group, w.shape[1], *full))
    xs, ws = x.reshape(count, group, ins // group, *size), w.reshape(group, ins // group, w.shape[1], *kernel)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = np.einsum("ngcyx,gco->ngoyx", xs, ws[..., i, j], optimize=True)
            made[..., i : i + part.shape[-2] * strides[0] : strides[0],
                 j : j + part.shape[-1] * strides[1] : strides[1]] += part  # fmt: skip
    made = made.reshape(count, -1, *full)
    return made[..., pads[0] : full[0] - pads[2], pads[1] : full[1] - pads[3]]


def convolution(form: Form, hypothesis: str) -> Array:
    x, w, *rest = given(form)
    turned = form.op == "ConvTranspose"
    group = form.attributes.get("group", 1)
    bias = rest[0].reshape(1, -1, *[1] * (w.ndim - 2)) if rest else 0.0
    compute = spread_out if turned else convolved
    if not hypothesis.startswith("fp16-sums"):
        product = compute(x, w, form.attributes)
        return h(h(product) + bias) if hypothesis == "bias-after" else h(product + bias)
    channels = w.shape[0] // group if turned else w.shape[1]
    window = math.prod(w.shape[2:])
    window = -(-window // math.prod(form.attributes["strides"])) if turned else window
    xs = x.reshape(x.shape[0], group, channels, *x.shape[2:])
    total = np.zeros(())
    for part in parts(channels, min(max(terms_of(hypothesis) // window, 1), channels)):
        some = xs[:, :, part].reshape(x.shape[0], -1, *x.shape[2:])
        if turned:
            weights = w.reshape(group, channels, *w.shape[1:])[:, part].reshape(-1, *w.shape[1:])
        else:
            weights = w[:, part]
        total = h(total + compute(some, weights, form.attributes))
    return h(total + bias)
