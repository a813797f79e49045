"""Rules for operators that only move values: where each came from is found by moving their indices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from halfwise.search.vjp.local import Array, Local, NoRule, Rule

__all__ = ["MOVEMENT", "traced"]

_EXACT = 1 << 24  # the largest index that FP32 holds exactly


def _reshaped(local: Local, slot: int) -> Array | None:
    if slot > 0:
        return None
    return local.gradient().reshape(local.probes, *local.input(0).shape)


def _transpose(local: Local, slot: int) -> Array:
    rank = local.input(0).ndim
    order = local.integers("perm") or tuple(reversed(range(rank)))
    back = np.argsort(order)
    return np.transpose(local.gradient(), (0, *(int(i) + 1 for i in back)))


def _concat(local: Local, slot: int) -> Array:
    axis = local.integer("axis", 0) % local.output().ndim
    start = sum(local.input(i).shape[axis] for i in range(slot))
    where = slice(start, start + local.input(slot).shape[axis])
    return local.gradient()[(slice(None),) * (axis + 1) + (where,)]


def _split(local: Local, slot: int) -> Array | None:
    if slot > 0:
        return None
    axis = local.integer("axis", 0) % local.input(0).ndim + 1
    parts = []
    for output, gradient in zip(local.outputs, local.gradients, strict=True):
        if output is None:
            raise NoRule
        parts.append(np.zeros((local.probes, *output.shape), np.float32) if gradient is None else gradient)
    return np.concatenate(parts, axis=axis)


def traced(*data: int) -> Rule:
    """Operators with values in the slots `data`; the other slots say where they go."""

    def rule(local: Local, slot: int) -> Array | None:
        if slot not in data:
            return None
        x = local.input(slot)
        if x.size >= _EXACT:
            raise NoRule
        marks: dict[int, Array] = {
            other: np.zeros_like(local.input(other)) for other in data if other != slot and local.has(other)
        }
        marks[slot] = np.arange(1, x.size + 1, dtype=x.dtype).reshape(x.shape)
        came_from = local.run(marks)[0].reshape(-1).astype(np.int64)
        return _gathered(came_from, local.flat(local.gradient()), x)

    return rule


def _gather(local: Local, slot: int) -> Array | None:
    """One entry is put back in its place: a loop that was unrolled takes them one after the other."""
    if slot != 0 or local.input(1).size != 1:
        return traced(0)(local, slot)
    x, gradient = local.input(0), local.gradient()
    axis, index = local.integer("axis", 0) % x.ndim, int(local.input(1).reshape(-1)[0])
    found = np.zeros((len(gradient), *x.shape), dtype=np.float32)
    place = found[(slice(None),) * (axis + 1) + (index,)]
    place[...] = gradient.reshape(place.shape)
    return found


def _scatter(local: Local, slot: int) -> Array | None:
    how = local.text("reduction", "none")
    if how == "none":
        return traced(0, 2)(local, slot)
    if how != "add":
        raise NoRule
    if slot == 0:
        return local.gradient()
    raise NoRule


def _pad(local: Local, slot: int) -> Array | None:
    if slot > 0:
        return None
    x = local.input(0)
    if local.text("mode", "constant") != "constant" or not local.has(2):
        return traced(0)(local, slot)
    if x.size >= _EXACT:
        raise NoRule
    marks = np.arange(1, x.size + 1, dtype=x.dtype).reshape(x.shape)
    came_from = local.run({0: marks, 2: np.zeros_like(local.input(2))})[0].reshape(-1).astype(np.int64)
    return _gathered(came_from, local.flat(local.gradient()), x)


def _gathered(came_from: NDArray[np.int64], gradient: Array, x: Array) -> Array:
    """The gradient of `x`, each of whose elements went to the places that hold its number; 0 is another's."""
    found = np.zeros((len(gradient), x.size), dtype=np.float32)
    own = came_from > 0
    if not own.all():
        came_from, gradient = came_from[own], gradient[:, own]
    if (np.diff(came_from) > 0).all() or np.bincount(came_from).max() <= 1:
        found[:, came_from - 1] = gradient
    else:
        for each, summed in zip(gradient, found, strict=True):
            summed[:] = np.bincount(came_from - 1, weights=each, minlength=x.size)
    return found.reshape(len(gradient), *x.shape)


def _top_k(local: Local, slot: int) -> Array | None:
    """The values; which ones they are does not change by a little."""
    if slot > 0:
        return None
    gradient = local.gradients[0]
    if gradient is None or len(local.outputs) < 2:
        raise NoRule
    axis = local.integer("axis", -1) % local.input(0).ndim
    found = np.zeros((len(gradient), *local.input(0).shape), dtype=np.float32)
    indices = np.broadcast_to(local.output(1), gradient.shape)
    np.put_along_axis(found, indices, gradient, axis=axis + 1)
    return found


def _cast(local: Local, slot: int) -> Array | None:
    if slot > 0:
        return None
    if local.input(0).dtype.kind != "f" or local.output().dtype.kind != "f":
        raise NoRule
    return local.gradient()


def _turned_back(local: Local, slot: int) -> Array:
    """Pairs are turned by an angle; the way back turns them by as much the other way."""
    if slot != 0:
        raise NoRule
    x = local.input(0)
    return np.stack([local.run({0: probe.reshape(x.shape), 2: -local.input(2)})[0] for probe in local.gradient()])


MOVEMENT: dict[str, Rule] = {
    **dict.fromkeys("Reshape Squeeze Unsqueeze Flatten".split(), _reshaped),
    **dict.fromkeys(
        """Slice GatherElements GatherND Expand Tile DepthToSpace SpaceToDepth ReverseSequence Trilu Compress
        CenterCropPad""".split(),
        traced(0),
    ),
    "Gather": _gather,
    "RotaryEmbedding": _turned_back,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Pad": _pad,
    "ScatterND": _scatter,
    "ScatterElements": _scatter,
    "Scatter": _scatter,
    "TopK": _top_k,
    "Cast": _cast,
    "CastLike": _cast,
}
