"""Chooses powers of two: the smallest that bring weights and activations to where FP16 keeps its bits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halfwise.repair.distinct import distinct
from halfwise.repair.scale_atoms import TYPICAL, Bools, Floats, Ints, Weights
from halfwise.repair.scale_classes import Classes
from halfwise.repair.scale_flow import ScaleFlow
from halfwise.repair.scale_table import Table

__all__ = ["Choice", "choose", "inaudible", "is_quiet"]

_STEP = 2.0**-25.8  # rms error of rounding to multiples of FP16's smallest subnormal
_TROUBLE = 2.0**-24  # squared error from there over squared size: as much as FP16's own relative rounding
_WANTED = 2.0**-28
_WORTH = 2.0**-20  # from here on the error is worth a multiplication more
_OVERFLOW = 15.99  # log2 of FP16's largest
_SMALLEST = 24  # 2^-24 is FP16's smallest number: what scales back has to be one, too
_LOUD, _CALM = 15.0, 13.0  # log2 of an activation: no room for unseen inputs; room
_REACH = 64
_SWEEPS = 4
_NEAR = 2
_FP32_BOTTOM = -125.0
_AUDIBLE = 2.0**-14  # an output below is lost in FP16, however its weights are kept


@dataclass(frozen=True, eq=False)
class Choice:
    """`power` of each class of unknowns; `after`: powers of single rows, undone right behind the node."""

    classes: Classes
    power: Ints
    after: dict[Weights, Ints] = field(default_factory=dict)

    def of(self, atoms: Ints) -> Ints:
        return np.rint(self.classes.times[atoms] * self.power[self.classes.labels[atoms]]).astype(np.int64)


@dataclass(frozen=True)
class _Need:
    """For each class: squared errors, by what they change with as the power does, and how far that may change."""

    errors: dict[float, Floats]
    low: Floats
    high: Floats

    @property
    def troubled(self) -> NDArray[np.bool_]:
        whole = sum(self.errors.values(), np.zeros(len(self.low)))
        found: NDArray[np.bool_] = (whole > _TROUBLE) | (self.high < 0) | (self.low > 0)
        return found

    def ask(self, local: Ints, times: Floats, error: Floats) -> None:
        for each in distinct(times):
            these = times == each
            known = self.errors.setdefault(float(each), np.zeros(len(self.low)))
            known += np.bincount(local[these], error[these], len(self.low))

    def allow(self, local: Ints, times: Floats, most: Floats) -> None:
        """`times` the change may be `most` and no more."""
        up = times > 0
        np.minimum.at(self.high, local[up], most[up] / times[up])
        np.maximum.at(self.low, local[~up], most[~up] / times[~up])


def choose(flow: ScaleFlow) -> Choice:
    classes = flow.classes
    choice = Choice(classes, np.zeros(classes.count, np.int64))
    table = Table(flow)
    everything = np.arange(1, classes.count)
    steps = classes.steps.copy()
    for node_read in (follow.read for follow, kept in zip(flow.atoms.follows, classes.kept, strict=True) if not kept):
        steps[classes.labels[node_read]] *= 2  # a square root halves the power
    for sweep in range(_SWEEPS):
        moved, late = False, sweep > 0  # what rows can bear by themselves is not asked of what they read
        troubled = np.zeros(classes.count, bool)
        troubled[everything] = _needs(table, choice.power, everything, late=late).troubled
        for stage in table.stages:
            batch = stage[troubled[stage]]
            if not len(batch):
                continue
            change, borne = _change(_needs(table, choice.power, batch, late=late), steps[batch])
            if not borne.all():  # what couples channels of a residual stream bears none of them alone
                together = _needs(table, choice.power, batch, late=late, together=True)
                change = np.where(borne, change, _change(together, steps[batch])[0])
            choice.power[batch] += change
            troubled[batch] = False  # until a neighbour changes
            if change.any():
                moved = True
                troubled[table.neighbours(batch[change != 0])] = True
                troubled[batch] = False
        if late and not moved:
            break
    for weights in flow.weights:
        _cut(flow, weights, choice)
    return choice


def inaudible(mean: Floats, made: Floats) -> Bools:
    """Rows of these mean squares that FP16 loses, and with them what they make, which is no larger than that."""
    with np.errstate(divide="ignore"):
        return (mean > 0) & (_STEP**2 / mean > _WORTH) & is_quiet(made)


def is_quiet(sizes: Floats) -> Bools:
    """What FP16 loses of values that are no larger than that."""
    return (sizes > 0) & (sizes < _AUDIBLE)


def _needs(table: Table, power: Ints, batch: Ints, *, late: bool, together: bool = False) -> _Need:
    """What a batch of classes, in growing order, asks for: each alone, or where all move `together`. What is read too
    loudly asks `late`."""
    count = len(batch)
    need = _Need({}, np.full(count, -float(_REACH)), np.full(count, float(_REACH)))
    units, local = table.units_of(batch)
    loud, quiet, times = table.loud[units], table.quiet[units], table.times[units]
    with np.errstate(divide="ignore", over="ignore"):
        now = times * power[batch][local]
        level, bottom = np.log2(loud) + now, np.log2(quiet) + now
        need.allow(local, times, np.where(level > _LOUD, _CALM - level, np.maximum(_CALM - level, 0.0)))
        need.allow(local, -times, np.where(np.isfinite(bottom), bottom - _FP32_BOTTOM, np.inf))
        seen = (loud > 0) & np.isfinite(loud)
        need.ask(local[seen], times[seen], (_STEP / (TYPICAL * loud * 2.0**now))[seen] ** 2)
    pools, local = table.pools_of(batch, power, together=together)
    there = pools.total > 0
    with np.errstate(divide="ignore"):
        need.allow(local[there], pools.times[there], _OVERFLOW - np.log2(pools.top[there]))
    hard = there & ~pools.soft
    need.ask(local[hard], pools.times[hard], _STEP**2 * pools.blocks[hard] / pools.total[hard])
    for places, shrinks, error in table.heard_by(batch, power, _TROUBLE / _STEP**2, columns=late, together=together):
        need.ask(places, shrinks, _STEP**2 * error)
    return need


def _change(need: _Need, multiple: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """The smallest change that leaves little error; if none does, the one that leaves least. And whether any is
    allowed."""
    steps = np.array(sorted(range(-_REACH, _REACH + 1), key=abs))
    error = np.zeros((len(need.low), len(steps)))
    with np.errstate(over="ignore", invalid="ignore"):
        for times, part in need.errors.items():
            error += np.where(part[:, None] > 0, part[:, None] * 4.0 ** (-times * steps), 0.0)
    error = np.where((steps >= need.low[:, None]) & (steps <= need.high[:, None]), error, np.inf)
    error[steps[None] % multiple[:, None] != 0] = np.inf
    enough = error <= _WANTED
    best = np.where(enough.any(axis=1), enough.argmax(axis=1), error.argmin(axis=1))
    possible: NDArray[np.bool_] = np.asarray(np.isfinite(error).any(axis=1))
    change = _alike(np.where(possible, steps[best], 0), need.low, np.where(multiple > 1, -np.inf, need.high))
    return change, possible


def _alike(change: Ints, low: Floats, high: Floats) -> Ints:
    """Channels that need nearly the same take the same: a plan that says one number is easier to read."""
    largest = change[np.abs(change).argmax()]
    near = (change != 0) & (np.abs(change - largest) <= _NEAR) & (low <= largest) & (largest <= high)
    return np.where(near, largest, change)


def _cut(flow: ScaleFlow, weights: Weights, choice: Choice) -> None:
    """Rows still in trouble whose result has to come out unscaled: scale them, and scale back right behind."""
    if weights.output is None or weights.columns is None:
        return
    layout = flow.layouts[weights.output]
    rows, columns = choice.of(weights.rows), choice.of(weights.columns)
    if weights.large is not None:
        lines = weights.large.rows(-columns.reshape(-1).astype(np.float64))
        mean, top = lines.square * 4.0**rows / columns.size, lines.peak * 2.0**rows
    else:
        scale = rows[:, None] - columns
        scale = scale[:1, :1] if scale.size and (scale == scale.flat[0]).all() else scale
        mean, top = (weights.square * 4.0**scale).mean(axis=1), (weights.peak * 2.0**scale).max(axis=1)
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
