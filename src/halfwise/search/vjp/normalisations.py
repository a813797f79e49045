"""Rules for normalisations."""

from __future__ import annotations

import numpy as np

from halfwise.search.vjp.elementwise import unbroadcast
from halfwise.search.vjp.local import Array, Local, NoRule, Rule

__all__ = ["NORMALISATIONS"]


def _standard(x: Array, axes: tuple[int, ...], epsilon: float, centre: bool = True) -> tuple[Array, Array]:
    """The normalised tensor and the factor that made it."""
    wide = x.astype(np.float64)
    if centre:
        wide = wide - wide.mean(axis=axes, keepdims=True)
    factor = 1 / np.sqrt(np.mean(wide * wide, axis=axes, keepdims=True) + epsilon)
    return (wide * factor).astype(np.float32), factor.astype(np.float32)


def _through(gradient: Array, normal: Array, factor: Array, axes: tuple[int, ...], centre: bool = True) -> Array:
    """The gradient before normalising, from the one behind it. `axes` are those of the tensor."""
    shifted = tuple(a % normal.ndim + 1 for a in axes)
    found = gradient - normal * (gradient * normal).mean(axis=shifted, keepdims=True)
    if centre:
        found = found - gradient.mean(axis=shifted, keepdims=True)
    return np.asarray(found * factor)


def _layer(centre: bool) -> Rule:
    def rule(local: Local, slot: int) -> Array:
        x, scale, gradient = local.input(0), local.input(1), local.gradient()
        first = local.integer("axis", -1) % x.ndim
        axes = tuple(range(first, x.ndim))
        normal, factor = _standard(x, axes, local.number("epsilon", 1e-5), centre)
        if slot == 0:
            return _through(gradient * scale, normal, factor, axes, centre)
        return unbroadcast(gradient * normal if slot == 1 else gradient, local.input(slot).shape)

    return rule


def _channels(vector: Array, rank: int) -> Array:
    return vector.reshape(-1, *(1,) * (rank - 2))


def _instance(local: Local, slot: int) -> Array:
    x, gradient = local.input(0), local.gradient()
    axes = tuple(range(2, x.ndim))
    normal, factor = _standard(x, axes, local.number("epsilon", 1e-5))
    if slot == 0:
        return _through(gradient * _channels(local.input(1), x.ndim), normal, factor, axes)
    return _per_channel(gradient * normal if slot == 1 else gradient)


def _group(local: Local, slot: int) -> Array:
    x, scale, gradient = local.input(0), local.input(1), local.gradient()
    groups = local.integer("num_groups", 0)
    if groups <= 0 or scale.size != x.shape[1]:  # before opset 21 there was one scale per group
        raise NoRule
    shape = (x.shape[0], groups, -1)
    normal, factor = _standard(x.reshape(shape), (2,), local.number("epsilon", 1e-5))
    if slot == 0:
        scaled = (gradient * _channels(scale, x.ndim)).reshape(len(gradient), *shape)
        return _through(scaled, normal, factor, (2,)).reshape(len(gradient), *x.shape)
    return _per_channel(gradient * normal.reshape(x.shape) if slot == 1 else gradient)


def _batch(local: Local, slot: int) -> Array:
    if local.integer("training_mode", 0):
        raise NoRule
    x, gradient = local.input(0), local.gradient()
    scale, mean, variance = (_channels(local.input(i), max(x.ndim, 2)) for i in (1, 3, 4))
    factor = 1 / np.sqrt(variance + np.float32(local.number("epsilon", 1e-5)))
    if slot == 0:
        return np.asarray(gradient * (scale * factor))
    if slot == 2:
        return _per_channel(gradient)
    if slot == 3:
        return _per_channel(gradient * -(scale * factor))
    normal = (x - mean) * factor
    return _per_channel(gradient * normal if slot == 1 else gradient * normal * (-0.5 * scale * factor * factor))


def _per_channel(gradient: Array) -> Array:
    return np.asarray(gradient.sum(axis=(1, *range(3, gradient.ndim))))


NORMALISATIONS: dict[str, Rule] = {
    "LayerNormalization": _layer(centre=True),
    "RMSNormalization": _layer(centre=False),
    "SimplifiedLayerNormalization": _layer(centre=False),
    "InstanceNormalization": _instance,
    "GroupNormalization": _group,
    "BatchNormalization": _batch,
}
