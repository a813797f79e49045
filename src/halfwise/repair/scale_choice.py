"""Chooses powers of two: the smallest that bring weights and activations to where FP16 keeps its bits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halfwise.repair.scale_atoms import TYPICAL, Floats, Ints, Layout, Weights
from halfwise.repair.scale_flow import ScaleFlow

__all__ = ["Choice", "choose"]

_STEP = 2.0**-25.8  # rms error of rounding to multiples of FP16's smallest subnormal
_TROUBLE = 2.0**-24  # squared error from there over squared size: as much as FP16's own relative rounding
_WANTED = 2.0**-28
_WORTH = 2.0**-20  # from here on the error is worth a multiplication more
_OVERFLOW = 15.99  # log2 of FP16's largest
_SMALLEST = 24  # 2^-24 is FP16's smallest number: what scales back has to be one, too
_LOUD, _CALM = 15.0, 13.0  # log2 of an activation: no room for unseen inputs; room
_REACH = 64
_SWEEPS = 3
_NEAR = 2
_FP32_BOTTOM = -125.0
_AUDIBLE = 2.0**-14  # an output below is lost in FP16, however its weights are kept


@dataclass
class Choice:
    """`power` of each class of unknowns; `after`: powers of single rows, undone right behind the node."""

    labels: Ints
    power: Ints
    after: dict[Weights, Ints] = field(default_factory=dict)

    def of(self, atoms: Ints) -> Ints:
        return self.power[self.labels[atoms]]


@dataclass
class _Need:
    """For each class: squared errors that shrink and that grow with its power, and how far the power may change."""

    shrinking: Floats
    growing: Floats
    low: Floats
    high: Floats


def choose(flow: ScaleFlow) -> Choice:
    labels = np.unique(flow.atoms.labels(), return_inverse=True)[1].reshape(-1)
    count = int(labels.max()) + 1
    choice = Choice(labels, np.zeros(count, np.int64))
    loudest, quietest = _activations(flow, labels, count)
    even = np.zeros(count, bool)
    for _, atoms in (*flow.roots, *flow.squares):
        even[labels[atoms]] = True
    stages = [np.unique(labels[weights.rows]) for weights in flow.weights if not weights.soft]
    stages += [np.unique(labels[w.columns]) for w in flow.weights if w.columns is not None]
    for _ in range(_SWEEPS):
        moved = False
        need = _needs(flow.weights, choice, loudest, quietest)
        troubled = _troubled(need)
        for stage in stages:
            batch = stage[troubled[stage] & (stage != 0)]
            if len(batch):
                touching = [w for w in flow.weights if _touches(w, labels, batch)]
                change = _change(_needs(touching, choice, loudest, quietest), batch, even[batch])
                choice.power[batch] += change
                moved = moved or bool(change.any())
        if not moved:
            break
    for weights in flow.weights:
        _cut(flow, weights, choice)
    return choice


def _activations(flow: ScaleFlow, labels: Ints, count: int) -> tuple[Floats, Floats]:
    """The largest and the smallest magnitude that the tensors of each class show."""
    loudest, quietest = np.zeros(count), np.full(count, np.inf)
    for value, layout in flow.layouts.items():
        cap = layout.cap
        np.maximum.at(loudest, labels[layout.atoms], cap)
        low = flow.ranges.low.get(value.name or "", 0.0)
        if low > 0:
            np.minimum.at(quietest, labels[layout.atoms], np.full(len(cap), low))
    return loudest, quietest


def _touches(weights: Weights, labels: Ints, batch: Ints) -> bool:
    found = np.isin(labels[weights.rows], batch).any()
    return bool(found or (weights.columns is not None and np.isin(labels[weights.columns], batch).any()))


def _scaled(weights: Weights, choice: Choice) -> tuple[Floats, Floats]:
    """Mean squares and peaks of a constant's blocks under the powers chosen so far."""
    power = choice.of(weights.rows)[:, None]
    if weights.columns is not None:
        power = power - choice.of(weights.columns)
    return weights.square * 4.0**power, weights.peak * 2.0**power


def _needs(all_weights: Iterable[Weights], choice: Choice, loudest: Floats, quietest: Floats) -> _Need:
    count = len(choice.power)
    need = _Need(np.zeros(count), np.zeros(count), np.full(count, -float(_REACH)), np.full(count, float(_REACH)))
    for weights in all_weights:
        square, peak = _scaled(weights, choice)
        rows = np.broadcast_to(choice.labels[weights.rows][:, None], square.shape)
        if weights.columns is None:
            _ask(need, rows.reshape(-1), square.reshape(-1), peak.reshape(-1), up=True, soft=weights.soft)
            continue
        columns = np.broadcast_to(choice.labels[weights.columns], square.shape)
        differ = rows != columns  # a factor between two of one class stays as it is
        parts = (rows[differ], square[differ], peak[differ])
        _ask(need, *parts, up=True, soft=weights.soft)
        _ask(need, columns[differ], *parts[1:], up=False, soft=weights.soft)
    with np.errstate(divide="ignore"):
        level = np.log2(loudest) + choice.power
        bottom = np.log2(quietest) + choice.power
    room = np.where(level > _LOUD, _CALM - level, np.maximum(_CALM - level, 0.0))
    need.high = np.minimum(need.high, room)
    need.low = np.maximum(need.low, np.where(np.isfinite(bottom), _FP32_BOTTOM - bottom, -np.inf))
    typical = TYPICAL * loudest * 2.0**choice.power
    seen = (loudest > 0) & np.isfinite(loudest)
    need.shrinking[seen] += (_STEP / typical[seen]) ** 2
    return need


def _ask(need: _Need, labels: Ints, square: Floats, peak: Floats, *, up: bool, soft: bool) -> None:
    """One constant's wishes, pooled over each class."""
    count = len(need.low)
    total = np.bincount(labels, square, count)
    blocks = np.bincount(labels, None, count)
    top = np.zeros(count)
    np.maximum.at(top, labels, peak)
    there = total > 0
    if not soft:
        error = np.zeros(count)
        error[there] = _STEP**2 * blocks[there] / total[there]
        if up:
            need.shrinking += error
        else:
            need.growing += error
    room = _OVERFLOW - np.log2(top, where=there, out=np.full(count, -np.inf))
    if up:
        need.high = np.minimum(need.high, room)
    else:
        need.low = np.maximum(need.low, -room)


def _troubled(need: _Need) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (need.shrinking + need.growing > _TROUBLE) | (need.high < 0) | (need.low > 0)
    return found


def _change(need: _Need, batch: Ints, even: NDArray[np.bool_]) -> Ints:
    """The smallest change that leaves little error; if none does, the one that leaves least."""
    steps = np.array(sorted(range(-_REACH, _REACH + 1), key=abs))
    error = need.shrinking[batch, None] * 4.0**-steps + need.growing[batch, None] * 4.0**steps
    error = np.where((steps >= need.low[batch, None]) & (steps <= need.high[batch, None]), error, np.inf)
    error[np.ix_(even, steps % 2 == 1)] = np.inf  # a square root halves the power
    enough = error <= _WANTED
    best = np.where(enough.any(axis=1), enough.argmax(axis=1), error.argmin(axis=1))
    possible = np.isfinite(error).any(axis=1)
    return _alike(np.where(possible, steps[best], 0), need.low[batch], np.where(even, -np.inf, need.high[batch]))


def _alike(change: Ints, low: Floats, high: Floats) -> Ints:
    """Channels that need nearly the same take the same: a plan that says one number is easier to read."""
    largest = change[np.abs(change).argmax()]
    near = (change != 0) & (np.abs(change - largest) <= _NEAR) & (low <= largest) & (largest <= high)
    return np.where(near, largest, change)


def _cut(flow: ScaleFlow, weights: Weights, choice: Choice) -> None:
    """Rows still in trouble whose result has to come out unscaled: scale them, and scale back right behind."""
    if weights.output is None or weights.columns is None:
        return
    layout: Layout = flow.layouts[weights.output]
    square, peak = _scaled(weights, choice)
    mean, top = square.mean(axis=1), peak.max(axis=1)
    out = layout.cap * 2.0 ** choice.of(layout.atoms)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(mean > 0, _STEP**2 / mean, 0.0)
        raise_by = np.ceil(np.log2(error / _WANTED) / 2)
        room = np.floor(np.minimum(_CALM - np.log2(out), _OVERFLOW - np.log2(top)))
        lower_by = np.ceil(np.log2(top) - _LOUD)
    tiny = (error > _WORTH) & (out >= _AUDIBLE) & np.isfinite(out)
    power = np.where(tiny, np.clip(np.minimum(raise_by, room), 0, _SMALLEST), 0)
    power = np.where(top > 65504.0, -lower_by, power).astype(np.int64)
    if power.any():
        choice.after[weights] = power
