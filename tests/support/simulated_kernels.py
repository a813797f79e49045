"""Kernels in NumPy, each by the name of the hypothesis that it is, written apart from the product."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from halfwise.emulation.probes import Form
from tests.support.simulated_products import convolution, gemm, matmul
from tests.support.simulated_recurrent import recurrent, resized
from tests.support.simulated_rounding import Array, given, h, sigmoid

__all__ = ["KERNELS", "erf", "layer_norm", "pointwise", "softmax"]

Kernel = Callable[[Form, str], "Array | None"]


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
