"""Rules for reductions, running sums and softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from halfwise.search.vjp.local import Array, Local, Rule, let_through

__all__ = ["REDUCTIONS"]

# x, y spread over x, whether x is the chosen one, and how many elements were reduced to one
_Factor = Callable[[Array, Array, int], "Array | float"]


def _axes(local: Local) -> tuple[int, ...]:
    rank = local.input(0).ndim
    axes = local.integers("axes")
    if axes is None and local.has(1):
        axes = tuple(int(a) for a in local.input(1).reshape(-1))
    if not axes:
        return () if local.integer("noop_with_empty_axes", 0) == 1 else tuple(range(rank))
    return tuple(a % rank for a in axes)


def _reduce(factor: _Factor) -> Rule:
    def rule(local: Local, slot: int) -> Array | None:
        if slot > 0:
            return None
        x, y, gradient = local.input(0), local.output(), local.gradient()
        axes = _axes(local)
        kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        count = int(np.prod([x.shape[i] for i in axes])) if axes else 1
        spread = gradient.reshape(len(gradient), *kept)
        return np.broadcast_to(spread, (len(gradient), *x.shape)) * factor(x, y.reshape(kept), count)

    return rule


def _global_average(local: Local, slot: int) -> Array:
    x, gradient = local.input(0), local.gradient()
    count = int(np.prod(x.shape[2:]))
    return np.broadcast_to(gradient / np.float32(count), (len(gradient), *x.shape))


def _global_max(local: Local, slot: int) -> Array:
    return local.gradient() * let_through(local.input(0), local.output())


def _log_sum(x: Array, y: Array, count: int) -> Array:
    return np.exp(-y)


def _product(x: Array, y: Array, count: int) -> Array:
    return np.where(x == 0, 0, y / np.where(x == 0, 1, x)).astype(np.float32)


def _length(x: Array, y: Array, count: int) -> Array:
    return x / np.where(y == 0, 1, y)


def _cumulative(local: Local, slot: int) -> Array | None:
    if slot > 0:
        return None
    gradient = local.gradient()
    axis = int(local.input(1).reshape(-1)[0]) % local.input(0).ndim + 1
    backwards = bool(local.integer("reverse", 0))
    flipped = gradient if backwards else np.flip(gradient, axis)
    total = np.cumsum(flipped, axis=axis, dtype=np.float32)
    if local.integer("exclusive", 0):
        total = total - flipped
    return total if backwards else np.flip(total, axis)


def _softmax(local: Local, slot: int) -> Array:
    y, gradient = local.output(), local.gradient()
    y, gradient, axis = _softmax_view(local, y, gradient)
    product = gradient * y
    found: Array = product - y * product.sum(axis=axis, keepdims=True)
    return found.reshape((len(gradient), *local.input(0).shape))


def _log_softmax(local: Local, slot: int) -> Array:
    y, gradient = local.output(), local.gradient()
    y, gradient, axis = _softmax_view(local, y, gradient)
    found: Array = gradient - np.exp(y) * gradient.sum(axis=axis, keepdims=True)
    return found.reshape((len(gradient), *local.input(0).shape))


def _softmax_view(local: Local, y: Array, gradient: Array) -> tuple[Array, Array, int]:
    """Before opset 13 everything from the axis on is one row."""
    if local.opset >= 13:
        return y, gradient, local.integer("axis", -1) % y.ndim + 1
    axis = local.integer("axis", 1) % y.ndim
    rows = int(np.prod(y.shape[:axis]))
    return y.reshape(rows, -1), gradient.reshape(len(gradient), rows, -1), 2


REDUCTIONS: dict[str, Rule] = {
    "ReduceSum": _reduce(lambda x, y, count: 1.0),
    "ReduceMean": _reduce(lambda x, y, count: 1.0 / count),
    "ReduceMax": _reduce(lambda x, y, count: let_through(x, y)),
    "ReduceMin": _reduce(lambda x, y, count: let_through(x, y)),
    "ReduceProd": _reduce(_product),
    "ReduceL1": _reduce(lambda x, y, count: np.sign(x)),
    "ReduceL2": _reduce(_length),
    "ReduceSumSquare": _reduce(lambda x, y, count: 2 * x),
    "ReduceLogSum": _reduce(_log_sum),
    "ReduceLogSumExp": _reduce(lambda x, y, count: np.exp(x - y)),
    "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
    "CumSum": _cumulative,
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
}
