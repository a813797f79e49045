"""Rules for operators that work element by element, with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from halfwise.search.vjp.local import Array, Local, NoRule, Rule, let_through

__all__ = ["ELEMENTWISE", "unbroadcast"]

_STEP = 2.0**-9  # of a finite difference, relative to the value and to the tensor's rms


def unbroadcast(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum a gradient over what broadcasting repeated."""
    extra = gradient.ndim - 1 - len(shape)
    if extra > 0:
        gradient = gradient.sum(axis=tuple(range(1, 1 + extra)))
    axes = tuple(i + 1 for i, want in enumerate(shape) if want == 1 and gradient.shape[i + 1] != 1)
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient


def _by_factor(factor: Callable[[Local, int], Array | float]) -> Rule:
    """A rule from the local derivative of the output by one input."""

    def rule(local: Local, slot: int) -> Array:
        gradient = local.gradient() * factor(local, slot)
        return unbroadcast(gradient, local.input(slot).shape)

    return rule


def _unary(derivative: Callable[[Array, Array, Local], Array | float]) -> Rule:
    def rule(local: Local, slot: int) -> Array | None:
        if slot > 0:
            raise NoRule
        return local.gradient() * derivative(local.input(0), local.output(), local)

    return rule


def _secant(local: Local, slot: int) -> Array:
    """Smooth functions without a formula of their own: a central difference."""
    if slot > 0:
        raise NoRule
    x = local.input(0)
    step = (np.abs(x) + np.sqrt(np.mean(np.square(x, dtype=np.float64)))) * _STEP
    above, below = np.asarray(x + step, dtype=x.dtype), np.asarray(x - step, dtype=x.dtype)
    rise = local.run({0: above})[0] - local.run({0: below})[0]
    return local.gradient() * (rise / np.where(above == below, 1, above - below)).astype(np.float32)


def _first_only(rule: Rule) -> Rule:
    """The other inputs are limits or steps, not data."""
    return lambda local, slot: rule(local, slot) if slot == 0 else None


def _leaky(x: Array, y: Array, local: Local) -> Array:
    return np.where(x >= 0, 1, local.number("alpha", 0.01)).astype(np.float32)


def _div(local: Local, slot: int) -> Array:
    return 1 / local.input(1) if slot == 0 else -local.output() / local.input(1)


def _pow(local: Local, slot: int) -> Array:
    base, exponent = local.input(0), local.input(1)
    if slot == 0:
        return np.asarray(exponent * np.power(base, exponent - 1), dtype=np.float32)
    return np.where(base > 0, local.output() * np.log(np.where(base > 0, base, 1)), 0).astype(np.float32)


def _extreme(local: Local, slot: int) -> Array:
    return let_through(local.input(slot), local.output())


def _prelu(local: Local, slot: int) -> Array:
    x, slope = local.input(0), local.input(1)
    return np.where(x < 0, slope, 1) if slot == 0 else np.where(x < 0, x, 0)


def _where(local: Local, slot: int) -> Array | None:
    if slot == 0:
        return None
    picked = local.input(0).astype(bool)
    gradient = np.where(picked if slot == 1 else ~picked, local.gradient(), np.float32(0))
    return unbroadcast(gradient, local.input(slot).shape)


ELEMENTWISE: dict[str, Rule] = {
    "Add": _by_factor(lambda local, slot: 1.0),
    "Sum": _by_factor(lambda local, slot: 1.0),
    "Mean": _by_factor(lambda local, slot: 1.0 / len(local.inputs)),
    "Sub": _by_factor(lambda local, slot: 1.0 if slot == 0 else -1.0),
    "Mul": _by_factor(lambda local, slot: local.input(1 - slot)),
    "Div": _by_factor(_div),
    "Pow": _by_factor(_pow),
    "Max": _by_factor(_extreme),
    "Min": _by_factor(_extreme),
    "PRelu": _by_factor(_prelu),
    "Where": _where,
    "Relu": _unary(lambda x, y, local: (x > 0).astype(np.float32)),
    "LeakyRelu": _unary(_leaky),
    "Clip": _first_only(_unary(lambda x, y, local: let_through(x, y))),
    "Sigmoid": _unary(lambda x, y, local: y * (1 - y)),
    "Tanh": _unary(lambda x, y, local: 1 - y * y),
    "Exp": _unary(lambda x, y, local: y),
    "Log": _unary(lambda x, y, local: 1 / x),
    "Sqrt": _unary(lambda x, y, local: 0.5 / y),
    "Reciprocal": _unary(lambda x, y, local: -y * y),
    "Neg": _unary(lambda x, y, local: -1.0),
    "Abs": _unary(lambda x, y, local: np.sign(x)),
    "Sin": _unary(lambda x, y, local: np.cos(x)),
    "Cos": _unary(lambda x, y, local: -np.sin(x)),
    "Erf": _unary(lambda x, y, local: np.float32(2 / math.sqrt(math.pi)) * np.exp(-x * x)),
    "Softplus": _unary(lambda x, y, local: 1 - np.exp(-y)),
    "Identity": _unary(lambda x, y, local: 1.0),
    "Dropout": _first_only(_unary(lambda x, y, local: 1.0)),
    **dict.fromkeys(
        """Acos Acosh Asin Asinh Atan Atanh Celu Cosh Elu Gelu HardSigmoid HardSwish Mish Selu Sinh Softsign Swish Tan
        ThresholdedRelu""".split(),
        _secant,
    ),
}
