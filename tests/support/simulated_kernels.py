"""Kernels in NumPy, each by the name of the hypothesis that it is, written apart from the product.

Everything is computed in FP64; `h` is where a kernel stores FP16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.emulation.probes import Form
from halfwise.emulation.profiles.recurrent import terms_per_step

__all__ = ["KERNELS", "convolved", "erf", "h", "layer_norm", "narrow_matmul", "pointwise", "softmax"]

Array = NDArray[np.float64]
Kernel = Callable[[Form, str], "Array | None"]


def h(x: Any) -> Array:
    return np.asarray(x).astype(np.float16).astype(np.float64)


def given(form: Form) -> list[Any]:
    return [None if a is None else a.astype(np.float64) if a.dtype.kind == "f" else a for a in form.arrays()]


def terms_of(hypothesis: str) -> int:
    return int(hypothesis.rsplit("-", 1)[1])


# -- products ---------------------------------------------------------------------------------------------------------


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
    if hypothesis == "factors-stored":
        alpha, beta = float(h(alpha)), float(h(beta))
    bias = beta * rest[0] if rest else 0.0
    if hypothesis.startswith("fp16-sums"):
        return h(alpha * narrow_matmul(x, w, terms_of(hypothesis)) + bias)
    product = alpha * (x @ w)
    return h(h(product) + bias) if hypothesis == "bias-after" else h(product + bias)


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


# -- softmax and norms ------------------------------------------------------------------------------------------------


def softmax(x: Array, axis: int = -1) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def softmax_of(form: Form, hypothesis: str) -> Array:
    (x,) = given(form)
    axis = form.attributes["axis"]
    largest = x.max(axis, keepdims=True)
    if hypothesis == "powers-stored" and axis in (-1, x.ndim - 1):
        powers = h(np.exp(x - largest))
        return h(powers / powers.sum(axis, keepdims=True))
    if hypothesis == "steps":
        powers = h(np.exp(h(x - largest)))
        return h(powers / h(powers.sum(axis, keepdims=True)))
    return h(softmax(x, axis))


def log_softmax(form: Form, hypothesis: str) -> Array:
    (x,) = given(form)
    axis = form.attributes["axis"]
    if hypothesis == "of-stored-share":
        return h(np.log(softmax_of(form, "steps")))
    shifted = x - x.max(axis, keepdims=True)
    return h(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def layer_norm(x: Array, axes: tuple[int, ...], epsilon: float, *, centred: bool = True) -> Array:
    shifted = x - x.mean(axes, keepdims=True) if centred else x
    return np.asarray(shifted / np.sqrt((shifted**2).mean(axes, keepdims=True) + epsilon))


def norm(form: Form, hypothesis: str) -> Array:
    x, scale, *rest = given(form)
    bias = rest[0] if rest else None
    axes = tuple(range(form.attributes["axis"] % x.ndim, x.ndim))
    epsilon, centred = form.attributes.get("epsilon", 1e-5), form.op == "LayerNormalization"
    if hypothesis == "wide":
        made = layer_norm(x, axes, epsilon, centred=centred) * scale
        return h(made if bias is None else made + bias)
    if hypothesis == "steps":
        shifted = h(x - h(x.mean(axes, keepdims=True))) if centred else x
        variance = h(h(shifted**2).mean(axes, keepdims=True))
        normal = h(shifted * h(1 / h(np.sqrt(h(variance + h(epsilon))))))
    else:
        normal = h(layer_norm(x, axes, epsilon, centred=centred))
    made = h(normal * scale)
    return made if bias is None else h(made + bias)


def group_norm(form: Form, hypothesis: str) -> Array:
    x, scale, bias = given(form)
    groups = form.attributes["num_groups"]
    normal = layer_norm(x.reshape(x.shape[0], groups, -1), (2,), 1e-5).reshape(x.shape)
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale, bias = scale.reshape(shape), bias.reshape(shape)
    return h(normal * scale + bias) if hypothesis == "wide" else h(h(h(normal) * scale) + bias)


def instance_norm(form: Form, hypothesis: str) -> Array:
    x, scale, bias = given(form)
    axes, shape = tuple(range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
    scale, bias = scale.reshape(shape), bias.reshape(shape)
    if hypothesis == "wide" or x.shape[0] == 1:
        return h(layer_norm(x, axes, 1e-5) * scale + bias)
    mean, count = x.mean(axes, keepdims=True), math.prod(x.shape[2:])
    share = 1 - 1 / count
    variance = h(((x - mean) ** 2).mean(axes, keepdims=True) / share)
    variance = h(variance * h(share) + h(1e-5))
    return h(h(h(scale * h(x - h(mean))) / h(np.sqrt(variance))) + bias)


def batch_norm(form: Form, hypothesis: str) -> Array:
    x, scale, bias, mean, variance = given(form)
    shape = (1, -1, *[1] * (x.ndim - 2))
    factor = scale / np.sqrt(variance + 1e-5)
    summand = bias - mean * factor
    if hypothesis == "folded":
        factor, summand = h(factor), h(summand)
    return h(x * factor.reshape(shape) + summand.reshape(shape))


# -- sums -------------------------------------------------------------------------------------------------------------


def one_by_one(x: Array) -> Array:
    """Along the last axis, every partial sum."""
    sums = np.zeros_like(x)
    total = np.zeros(x.shape[:-1])
    for place in range(x.shape[-1]):
        total = h(total + x[..., place])
        sums[..., place] = total
    return sums


def blocked(x: Array, axes: tuple[int, ...]) -> Array:
    """A stored sum; over the first axes of several blocks of rows, added one after the other."""
    long = [axis for axis in range(x.ndim) if x.shape[axis] > 1]
    first = long[: len(axes)] == list(axes) and len(axes) < len(long)
    rows = math.prod(x.shape[axis] for axis in axes)
    columns = x.size // rows
    thread = 1 << (min(columns, 32) - 1).bit_length()
    block = 1 << (max(1, min(512 // thread, rows // 4)) - 1).bit_length()
    across = max(1, min(columns // thread, 512))
    blocks = max(1, min(512 // across, rows // block // 4))
    kept = x.sum(axes, keepdims=True).shape
    if not first or blocks == 1:
        return h(x.sum(axes, keepdims=True))
    flat, total = x.reshape(rows, columns), np.zeros(columns)
    for which in range(blocks):
        mine = [row for row in range(rows) if row // block % blocks == which]
        total = h(total + h(flat[mine].sum(0)))
    return np.asarray(total.reshape(kept))


def reduction(form: Form, hypothesis: str) -> Array:
    x, stated = given(form)
    axes = tuple(sorted(int(axis) % x.ndim for axis in stated))
    count = math.prod(x.shape[axis] for axis in axes)
    op = form.op.removeprefix("Reduce")
    outer = list(axes) in (list(range(x.ndim))[: len(axes)], list(range(x.ndim))[-len(axes) :])
    if hypothesis == "one-by-one" and axes == (x.ndim - 1,):
        total = one_by_one(x)[..., -1:]
        return h(total / count) if op == "Mean" else total
    stored = hypothesis in ("sum-stored", "blocks-of-rows", "squares-stored")
    if op == "Mean":
        return h(blocked(x, axes) / h(count)) if stored and outer else h(x.mean(axes, keepdims=True))
    if op == "Sum":
        return blocked(x, axes) if stored else h(x.sum(axes, keepdims=True))
    if op == "SumSquare":
        return blocked(h(x * x), axes) if stored else h((x * x).sum(axes, keepdims=True))
    if op == "L2":
        total = (x * x).sum(axes, keepdims=True)
        return h(np.sqrt(h(total) if stored else total))
    if op == "LogSum":
        return h(np.log(blocked(x, axes) if stored else x.sum(axes, keepdims=True)))
    largest = x.max(axes, keepdims=True)  # the logarithm of a sum of powers
    if hypothesis == "steps":
        return h(h(np.log(h(h(np.exp(h(x - largest))).sum(axes, keepdims=True)))) + largest)
    return h(np.log(np.exp(x - largest).sum(axes, keepdims=True)) + largest)


def running(form: Form, hypothesis: str) -> Array:
    x, _ = given(form)
    return one_by_one(x) if hypothesis == "one-by-one" else h(np.cumsum(x, -1))


def summed(form: Form, hypothesis: str) -> Array:
    first, *others = given(form)
    total = first
    for each in others:
        total = h(total + each) if hypothesis == "one-by-one" else total + each
    return h(total)


def pooled(form: Form, hypothesis: str) -> Array | None:
    (x,) = given(form)
    if form.op == "GlobalAveragePool":
        total, count = x.sum((2, 3), keepdims=True), x.shape[2] * x.shape[3]
    elif x.ndim == 4 and not form.attributes.get("pads"):
        kernel = form.attributes["kernel_shape"]
        strides = form.attributes.get("strides", [1, 1])
        windows = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))
        total, count = windows[:, :, :: strides[0], :: strides[1]].sum((-1, -2)), math.prod(kernel)
    else:
        return None
    return h((h(total) if hypothesis == "sum-stored" else total) / count)


# -- pointwise --------------------------------------------------------------------------------------------------------


def erf(x: Array) -> Array:
    return np.array([math.erf(each) for each in np.ravel(x)]).reshape(np.shape(x))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus_steps(x: Array) -> Array:
    small = h(np.log(h(h(np.exp(-np.abs(x))) + 1)))
    return np.where(x > 0, x + small, small)


def mirrored(x: Array) -> Array:
    """In FP32, which is what loses the last bits below 0."""
    one = np.float32(1)
    upper = one / (one + np.exp(-np.abs(x.astype(np.float32))))
    return np.asarray(np.where(x > 0, upper, one - upper).astype(np.float64))


def fast_gelu(x: Array) -> Array:
    inner = h(h(0.035677408136300125) * h(x * x) + h(0.7978845608028654))
    return x * h(0.5 + 0.5 * h(np.tanh(h(x * inner))))


def gelu(x: Array, form: Form, hypothesis: str) -> Array:
    if form.attributes.get("approximate") == "tanh":
        if hypothesis == "tanh-in-steps":
            return fast_gelu(x)
        return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
    if hypothesis == "erf-in-steps":
        return h(x * h(h(erf(h(x / h(np.sqrt(2.0))))) + 1)) * 0.5
    return 0.5 * x * (1 + erf(x / np.sqrt(2.0)))


def selu(x: Array, hypothesis: str) -> Array:
    alpha, gamma = 1.67326319217681884765625, 1.05070102214813232421875
    if hypothesis == "wide":
        return np.where(x > 0, gamma * x, gamma * alpha * np.expm1(np.minimum(x, 0)))
    alpha, gamma = float(h(alpha)), float(h(gamma))
    return np.where(x > 0, gamma * x, h(alpha * gamma) * h(h(np.exp(x)) - 1))


_WIDE: Mapping[str, Callable[..., Array]] = {
    "Add": np.add, "Cos": np.cos, "Div": np.divide, "Erf": erf, "Exp": np.exp, "Log": np.log, "Mul": np.multiply,
    "Pow": np.power, "Reciprocal": lambda x: 1 / x, "Sigmoid": sigmoid, "Sin": np.sin, "Sqrt": np.sqrt,
    "Sub": np.subtract, "Tanh": np.tanh,
    "Softplus": lambda x: np.logaddexp(0, x),
    "Mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}  # fmt: skip
_STEPS: Mapping[tuple[str, str], Callable[..., Array]] = {
    ("Div", "by-reciprocal"): lambda x, y: x * h(1 / y),
    ("Exp", "power-of-two"): lambda x: 2.0 ** h(x / np.log(2.0)),
    ("HardSwish", "steps"): lambda x: x * np.clip(h(h(x / 6) + 0.5), 0, 1),
    ("Mish", "steps"): lambda x: x * h(np.tanh(h(softplus_steps(x)))),
    ("Sigmoid", "mirrored"): mirrored,
    ("Sigmoid", "steps"): lambda x: 1 / h(1 + h(np.exp(-x))),
    ("Softplus", "steps"): softplus_steps,
    ("Softsign", "steps"): lambda x: x / h(1 + np.abs(x)),
    ("Tanh", "by-sigmoid"): lambda x: 2 * h(sigmoid(2 * x)) - 1,
}


def pointwise(form: Form, hypothesis: str) -> Array:
    x, *rest = given(form)
    base, *limits = hypothesis.split(", ")
    with np.errstate(all="ignore"):
        made = _pointwise(form, base, x, rest)
        if "saturated" in limits:
            made = np.clip(made, -65504.0, 65504.0)
        made = h(made)
        return np.where(np.abs(made) < 2.0**-14, 0.0, made) if "flushed" in limits else made


def _pointwise(form: Form, base: str, x: Array, rest: list[Array]) -> Array:
    stated = form.attributes
    if form.op == "Gelu":
        return gelu(x, form, base)
    if form.op == "Selu":
        return selu(x, base)
    if form.op == "LeakyRelu":
        slope = stated["alpha"] if base == "wide" else h(stated["alpha"])
        return np.where(x > 0, x, slope * x)
    if form.op == "Elu":
        below = np.expm1(np.minimum(x, 0)) if base == "wide" else h(h(np.exp(x)) - 1)
        return np.where(x > 0, x, stated["alpha"] * below)
    if form.op == "HardSigmoid":
        factor, summand = (stated[name] if base == "wide" else h(stated[name]) for name in ("alpha", "beta"))
        return np.clip(factor * x + summand, 0, 1)
    return _STEPS.get((form.op, base), _WIDE[form.op])(x, *rest)


# -- recurrent --------------------------------------------------------------------------------------------------------


def recurrent(form: Form, hypothesis: str) -> Array:
    x, w, r, b, *rest = given(form)
    states = [each for each in rest if each is not None]
    size = form.attributes["hidden_size"]
    on_cpu = form.op == "GRU" and not form.attributes.get("linear_before_reset")
    step = _wide_step if hypothesis == "wide" or on_cpu else _stored_step
    made = np.zeros((x.shape[0], w.shape[0], x.shape[1], size))
    for side in range(w.shape[0]):
        state = states[0][side] if states else np.zeros((x.shape[1], size))
        cell = states[1][side] if len(states) > 1 else np.zeros((x.shape[1], size))
        order = range(x.shape[0])[::-1] if side else range(x.shape[0])
        for place in order:
            state, cell = step(form, x[place], state, cell, w[side], r[side], b[side], x.shape[0])
            made[place, side] = state
    return h(made)


def _wide_step(form: Form, x: Array, state: Array, cell: Array, w: Array, r: Array, b: Array, _: int) -> Any:
    size = state.shape[1]
    bias = b.reshape(2, -1)
    ins, inner = x @ w.T + bias[0], state @ r.T
    if form.op == "RNN":
        return np.tanh(ins + inner + bias[1]), cell
    if form.op == "LSTM":
        i, o, f, c = np.split(ins + inner + bias[1], 4, axis=1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        return sigmoid(o) * np.tanh(cell), cell
    inner_z, inner_r, inner_h = np.split(inner, 3, axis=1)
    z_in, r_in, h_in = np.split(ins, 3, axis=1)
    bias_z, bias_r, bias_h = np.split(bias[1], 3)
    update, reset = sigmoid(z_in + inner_z + bias_z), sigmoid(r_in + inner_r + bias_r)
    if form.attributes.get("linear_before_reset"):
        offered = np.tanh(h_in + reset * (inner_h + bias_h))
    else:
        offered = np.tanh(h_in + (reset * state) @ r[2 * size :].T + bias_h)
    return (1 - update) * offered + update * state, cell


def _stored_product(x: Array, w: Array, columns: int) -> Array:
    total = np.zeros(())
    for start, end in terms_per_step(x.shape[1], columns):
        total = h(total + x[:, start:end] @ w[:, start:end].T)
    return total


def _gate(x: Array) -> Array:
    return h(1 / h(1 + h(np.exp(-x))))


def _bend(x: Array) -> Array:
    return h(2 * _gate(2 * x) - 1)


def _stored_step(form: Form, x: Array, state: Array, cell: Array, w: Array, r: Array, b: Array, steps: int) -> Any:
    bias = b.reshape(2, -1)
    ins = _stored_product(x, w, x.shape[0] * steps)
    inner = _stored_product(state, r, x.shape[0])
    if form.op == "GRU":
        z_in, r_in, h_in = np.split(ins, 3, axis=1)
        z_inner, r_inner, h_inner = np.split(inner, 3, axis=1)
        gates = []
        for one, other, place in ((z_in, z_inner, 0), (r_in, r_inner, 1)):
            total = h(one + other)
            for each in bias:
                total = h(total + np.split(each, 3)[place])
            gates.append(_gate(total))
        update, reset = gates
        offered, kept = h(h_in + np.split(bias[0], 3)[2]), h(h_inner + np.split(bias[1], 3)[2])
        offered = _bend(h(reset * kept + offered))
        return h(h(1 - update) * offered + h(update * state)), cell
    joined = h(ins + inner)
    for each in bias:
        joined = h(joined + each)
    if form.op == "RNN":
        return _bend(joined), cell
    i, o, f, c = np.split(joined, 4, axis=1)
    cell = h(_gate(f) * cell + h(_gate(i) * _bend(c)))
    return h(_gate(o) * _bend(cell)), cell


def resized(form: Form, hypothesis: str) -> Array | None:
    x, _, _, sizes = given(form)
    mode = form.attributes.get("coordinate_transformation_mode", "half_pixel")
    if form.attributes["mode"] != "linear":
        return None
    rows, columns = (_places(x.shape[axis], int(sizes[axis]), mode) for axis in (2, 3))
    total: Any = None
    for a, b in ((1, 0), (0, 0), (0, 1), (1, 1)):
        share = rows[1][a][:, None] * columns[1][b][None, :]
        picked = x[:, :, rows[0][a]][:, :, :, columns[0][b]]
        if hypothesis == "steps":
            total = picked * h(share) if total is None else h(total) + picked * h(share)
        else:
            total = picked * share if total is None else total + picked * share
    return h(total)


def _places(size: int, made: int, mode: str) -> tuple[list[Any], list[Array]]:
    place = np.arange(made, dtype=np.float32)
    if mode == "align_corners":
        source = place * np.float32(size - 1) / np.float32(made - 1)
    elif mode == "pytorch_half_pixel" and made == 1:
        source = place * 0
    else:
        source = (place + np.float32(0.5)) / (np.float32(made) / np.float32(size)) - np.float32(0.5)
    source = np.clip(source, 0, size - 1).astype(np.float32)
    low = np.floor(source).astype(int)
    share = (source - low).astype(np.float32)
    return [low, np.minimum(low + 1, size - 1)], [(np.float32(1) - share).astype(float), share.astype(float)]


KERNELS: Mapping[str, Kernel] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), convolution),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool"), pooled),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), recurrent),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), norm),
    **{f"Reduce{what}": reduction for what in ("L2", "LogSum", "LogSumExp", "Mean", "Sum", "SumSquare")},
    **dict.fromkeys((*_WIDE, "Elu", "Gelu", "HardSigmoid", "LeakyRelu", "Selu"), pointwise),
    "BatchNormalization": batch_norm,
    "CumSum": running,
    "Gemm": gemm,
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LogSoftmax": log_softmax,
    "MatMul": matmul,
    "Resize": resized,
    "Softmax": softmax_of,
    "Sum": summed,
}
